"""Training through a padding by ``ops.pad``, of which MindSpore itself gets the first gradient right alone (2.10)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.analysis.training.network import network_parts
from mindspore import nn, ops

import boost_compile as bc

WEIGHTS = ("first.weight", "second.weight")
State = dict[str, np.ndarray]


class Padded(nn.Cell):
    """A convolution behind a padding, by ``ops.pad``, whose gradient takes elements away, or by ``nn.Pad``."""

    def __init__(self, by_ops: bool) -> None:
        super().__init__()
        self.by_ops = by_ops
        self.pad = nn.Pad(((0, 0), (0, 0), (0, 1), (1, 0)))
        self.first = nn.Conv2d(1, 2, 3, weight_init=0.1)
        self.second = nn.Conv2d(2, 1, 2, pad_mode="valid", weight_init=0.2)

    def construct(self, x):
        x = self.first(x)
        x = ops.pad(x, (1, 0, 0, 1)) if self.by_ops else self.pad(x)
        return ops.reduce_mean(ops.square(self.second(x)))


def images() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.standard_normal((2, 1, 6, 6)).astype(np.float32) for _ in range(8)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    folder, found = tmp_path_factory.mktemp("padded"), {}
    for by_ops in (True, False):
        network = Padded(by_ops)
        cell = nn.TrainOneStepCell(network, nn.Momentum(network.trainable_params(), 0.1, 0.9)).set_train()
        found[by_ops] = folder / f"{by_ops}.mindir"
        ms.export(cell, ms.Tensor(images()[0]), file_name=str(found[by_ops]), file_format="MINDIR")
    return found


def in_a_session(path: Path, batches: Sequence[np.ndarray]) -> State:
    session = bc.Session(bc.load(path))
    for image in batches:
        session.step(image)
    return {name: session.state()[name] for name in WEIGHTS}


def test_a_session_slices(files: dict[bool, Path]) -> None:
    sliced, padded = (in_a_session(files[by_ops], images()) for by_ops in (True, False))
    for name in WEIGHTS:
        np.testing.assert_array_equal(sliced[name], padded[name])


@pytest.mark.parametrize("steps", [1, 4])
def test_a_file_of_one_graph_has_slices_for_plain_mindspore(
    files: dict[bool, Path], tmp_path: Path, steps: int
) -> None:
    program = bc.compile(bc.load(files[True]), f"gradient-accumulation{{steps={steps}}}")
    assert "1 padding by negative widths sliced for cpu" in program.reports[0].summary, "nobody need ask for it"
    slices = [node for graph in program.graphs.values() for node in graph if node.op.name == "Slice"]
    assert [network_parts(node.home)[node] for node in slices] == ["backward"]
    assert bc.prove(str(files[True]), program).proved
    program.save(str(tmp_path / "one.mindir"))
    cell = nn.GraphCell(ms.load(str(tmp_path / "one.mindir"))).set_train()
    for image in images():
        cell(ms.Tensor(image))
    trained = {p.name: p.asnumpy() for p in cell.get_parameters()}
    padded = bc.Session(bc.compile(bc.load(files[False]), f"gradient-accumulation{{steps={steps}}}"))
    for image in images():
        padded.step(image)
    for name in WEIGHTS:
        np.testing.assert_array_equal(trained[name], padded.state()[name])
