"""The example network and its data: what the demo and its native reference rest on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The three modules, imported as a script in their folder would."""
    import importlib
    from types import SimpleNamespace

    monkeypatch.syspath_prepend(EXAMPLES)
    return SimpleNamespace(
        **{name: importlib.import_module(name) for name in ("digits", "lenet", "native_accumulation")}
    )


def test_the_split_is_stratified_disjoint_and_the_same_for_a_seed(examples: Any) -> None:
    data = examples.digits.load()
    assert data.train_images.shape == (4000, 1, 32, 32)
    assert data.train_images.dtype == np.float32
    assert np.bincount(data.test_labels).tolist() == [100] * 10
    assert np.bincount(data.train_labels).tolist() == [400] * 10
    rows = {image.tobytes() for image in data.train_images}
    assert not any(image.tobytes() in rows for image in data.test_images)
    again, other = examples.digits.load(), examples.digits.load(seed=2)
    assert all(np.array_equal(a, b) for a, b in zip(data, again, strict=True))
    assert not np.array_equal(data.train_labels, other.train_labels)
    # Neighbours in the file are of one digit; after the shuffle about one in ten is.
    assert np.mean(data.train_labels[1:] == data.train_labels[:-1]) < 0.2


def test_held_out_must_be_the_same_of_each_digit(examples: Any) -> None:
    for wrong in (0, 5, 5000):
        with pytest.raises(ValueError, match="held_out must be"):
            examples.digits.load(held_out=wrong)


def test_enlarging_is_linear_with_aligned_centres(examples: Any) -> None:
    ramp = np.tile(np.arange(28, dtype=np.float32), (28, 1))
    enlarged = examples.digits.enlarge(ramp[None])[0]
    expected = np.clip((np.arange(32) + 0.5) * 28 / 32 - 0.5, 0, 27)
    np.testing.assert_allclose(enlarged, np.tile(expected, (32, 1)), atol=1e-5)


def test_every_image_once_an_epoch(examples: Any) -> None:
    batches = examples.digits.order(40, 8, 2)
    assert [len(batch) for batch in batches] == [8] * 10
    first, second = np.concatenate(batches[:5]), np.concatenate(batches[5:])
    assert sorted(first) == sorted(second) == list(range(40))
    assert not np.array_equal(first, second)


def test_accumulating_one_micro_batch_is_the_tutorials_training(examples: Any) -> None:
    import mindspore as ms

    rng = np.random.default_rng(0)
    images = rng.standard_normal((32, 1, 32, 32)).astype(np.float32)
    labels = rng.integers(0, 10, 32).astype(np.int32)
    batches = examples.digits.order(32, 8, 1)
    losses, state = examples.native_accumulation.train(images, labels, batches, accumulate=1)
    cell = examples.lenet.training_cell()
    plain = [float(cell(ms.Tensor(images[places]), ms.Tensor(labels[places]))) for places in batches]
    assert losses == plain
    assert all(np.array_equal(parameter.asnumpy(), state[parameter.name]) for parameter in cell.get_parameters())


def test_the_exported_file_trains_and_its_weights_evaluate(examples: Any, tmp_path: Path) -> None:
    import mindspore as ms
    from mindspore import nn

    path = examples.lenet.export_lenet(tmp_path / "lenet.mindir", batch_size=8)
    cell = nn.GraphCell(ms.load(str(path)))
    images = np.random.default_rng(0).standard_normal((8, 1, 32, 32)).astype(np.float32)
    labels = np.arange(8, dtype=np.int32)
    assert float(cell(ms.Tensor(images), ms.Tensor(labels))) == pytest.approx(np.log(10), abs=0.05)
    state = {parameter.name: parameter.asnumpy() for parameter in cell.get_parameters()}
    # A last layer that ignores its input and always says 3.
    state["fc3.weight"], state["fc3.bias"] = np.zeros((10, 84), np.float32), np.eye(10, dtype=np.float32)[3]
    assert examples.lenet.accuracy(state, images, labels) == 1 / 8
    del state["fc1.weight"]
    with pytest.raises(KeyError, match=r"fc1\.weight"):
        examples.lenet.accuracy(state, images, labels)
