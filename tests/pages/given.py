"""The files that a page takes for given, made once: the reader's network, data and configurations."""

from __future__ import annotations

import shutil
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn, ops

import boost_compile as bc

from .my_network import MyNetwork, WithLoss, tokens_cell, training_cell

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BATCH, SAMPLES = 4, 16
BOOST = '{"boost": {"mode": "manual", "less_bn": false, "grad_freeze": true}, "grad_freeze": {"param_groups": 3}}'


def make_all(folder: Path) -> None:
    """Writes all of them; each page's folder gets copies of those that it names."""
    ms.set_seed(1)
    images, labels = ops.zeros((BATCH, 1, 8, 8)), ops.zeros((BATCH,), ms.int32)

    def export(cell: object, name: str, *inputs: ms.Tensor) -> None:
        ms.export(cell, *inputs, file_name=str(folder / name), file_format="MINDIR")

    export(training_cell(), "model.mindir", images, labels)
    program = bc.compile(bc.load(folder / "model.mindir"), "gradient-accumulation{steps=4}")
    program.save(folder / "model.boost")
    network = MyNetwork().set_train(False)
    export(network, "net.mindir", images)
    export(network, "again.mindir", images)
    export(WithLoss().set_train(), "net_with_loss.mindir", ops.zeros((BATCH, 6)), labels)
    tokens = ops.zeros((BATCH, 5), ms.int32)
    export(tokens_cell(), "tokens.mindir", tokens, tokens, ops.ones((BATCH, 5)))
    random = np.random.default_rng(0)
    pictures = random.standard_normal((SAMPLES, 1, 8, 8)).astype(np.float32)
    np.savez(folder / "train.npz", images=pictures, labels=random.integers(0, 10, SAMPLES).astype(np.int32))
    shutil.copy(ROOT / "examples/onnx_digits/digits.onnx", folder / "model.onnx")
    digits = random.standard_normal((40, 1, 32, 32)).astype(np.float32)
    np.savez(folder / "digits.npz", images=digits, label=random.integers(0, 10, 40).astype(np.int32))
    (folder / "boost.json").write_text(BOOST)
    _checkpoints(folder / "checkpoints")


def _checkpoints(folder: Path) -> None:
    """Weights of several moments of a training, which dim-reduce takes its basis from."""
    folder.mkdir()
    random = np.random.default_rng(1)
    for k in range(34):
        network = MyNetwork()
        for parameter in network.trainable_params():
            noise = random.standard_normal(parameter.shape).astype(np.float32)
            parameter.set_data(ms.Tensor(0.1 * noise))
        ms.save_checkpoint(network, str(folder / f"{k:03}.ckpt"))


def _dataset(*columns: np.ndarray) -> ms.dataset.Dataset:
    # Rows of rank 0 must be arrays: mindspore.dataset takes no numpy scalars under numpy 2.
    rows = [tuple(np.array(column[i]) for column in columns) for i in range(len(columns[0]))]
    return ms.dataset.GeneratorDataset(rows, [f"column{i}" for i in range(len(columns))], shuffle=False).batch(BATCH)


def names_of_the_reader(given: Path, page: str) -> dict[str, object]:
    """The names that a page's blocks of Python use as the reader's own: ``images`` and ``labels`` are one micro-batch
    of Tensors on the pages that export or capture with them, else all the data."""
    data = np.load(given / ("digits.npz" if page == "docs/onnx.md" else "train.npz"))
    images, labels = data.values()
    tensors = ms.Tensor(images[:BATCH]), ms.Tensor(labels[:BATCH])
    one_batch = page in ("README.md", "docs/from-mindspore-boost.md")
    return {
        "bc": bc,
        "ms": ms,
        "nn": nn,
        "Model": ms.train.Model,
        "MyNetwork": MyNetwork,
        "loss_fn": nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"),
        "dataset": _dataset(images, labels),
        "program": bc.load(given / "model.boost"),
        "training_cell": training_cell(),
        "images": tensors[0] if one_batch else images,
        "labels": tensors[1] if one_batch else labels,
        "train_images": images,
        "test_images": images,
        "train_labels": labels,
    }
