"""`boost-inspect --forward`: the network of a trained program as a Cell, as MindIR and as ONNX, run elsewhere."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import onnxruntime
import pytest
from boost_compile.tools.inspect import command
from mindspore import nn

import boost_compile as bc
from tests.networks import export
from tests.networks.heads import HEADS, normalised_head
from tests.runtime.evaluation import evaluating
from tests.runtime.evaluation.evaluating import CONVOLUTIONS, Convolutions, natively

from .support import assert_one_error, shell


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model.boost`, `trained.safetensors`, and what the native network gives: `given.npy`, `expected.npy`."""
    folder = tmp_path_factory.mktemp("forward")
    source = bc.load(export(CONVOLUTIONS, folder))
    program = bc.compile(source, "less-bn,normalised-head,gradient-accumulation{steps=2},overflow-check")
    program.save(str(folder / "model.boost"))
    session = bc.Session(program)
    for batch in CONVOLUTIONS.batches(4):
        session.step(*batch)
    session.save(folder / "trained.safetensors")
    images, _ = evaluating.images(np.random.default_rng(3), 6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(HEADS, "Convolutions", "output")
        native = normalised_head(Convolutions(inner=False))
    np.save(folder / "given.npy", images)
    np.save(folder / "expected.npy", natively(native, session.state(), images))
    return folder


def as_onnx(path: Path, images: np.ndarray) -> Any:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"inputs0": images})[0]


def as_mindir(path: Path, images: np.ndarray) -> Any:
    return nn.GraphCell(ms.load(str(path)))(ms.Tensor(images)).asnumpy()


def as_python(path: Path, images: np.ndarray) -> Any:
    spec = importlib.util.spec_from_file_location("forward_network", path / "network.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["forward_network"] = module
    spec.loader.exec_module(module)
    ms.set_context(mode=ms.GRAPH_MODE)
    return module.load()(ms.Tensor(images)).asnumpy()


@pytest.mark.parametrize(
    ("name", "flags", "run"),
    [
        ("network.onnx", ["--standard"], as_onnx),
        ("network.mindir", ["--forward"], as_mindir),
        ("network", ["--forward", "--format", "python"], as_python),
    ],
)
def test_runs_elsewhere_as_the_native_network(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, flags: list[str], run: Any
) -> None:
    """A program that less-bn, normalised-head, accumulation and overflow-check have gone through."""
    files = [folder / "model.boost", "--state", folder / "trained.safetensors", "-o", tmp_path / name]
    result = shell(capsys, command, *files, *flags, "--batch-size", "6")
    assert result.code == 0
    assert "inputs0 -> output" in result.out
    assert "6 samples; without inputs1; without loss, backward part and optimizer" in result.out
    found = run(tmp_path / name, np.load(folder / "given.npy"))
    np.testing.assert_allclose(found, np.load(folder / "expected.npy"), atol=1e-5)


def test_every_view_shows_it(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "model.boost"
    assert "learning_rate" not in shell(capsys, command, file, "--forward").out
    text = shell(capsys, command, file, "--forward", "--format", "text").out
    assert "graph @network(%inputs0: float32[4,2,8,8]) -> (output)" in text
    assert "accum." not in text
    training = shell(capsys, command, file, "--format", "python")
    assert_one_error(training, "boost-inspect", "Of a training program boost-inspect --forward --format python writes")
    python = shell(capsys, command, file, "--forward", "--format", "python").out
    assert "class Network(nn.Cell)" in python
    assert shell(capsys, command, file, "--forward", "-o", tmp_path / "network.dot").code == 0


def test_what_it_says_where_it_cannot(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, output = folder / "model.boost", tmp_path / "network.mindir"
    wrong = shell(capsys, command, file, "--forward", "-o", output, "--result", "nowhere")
    assert_one_error(wrong, "boost-inspect", "has no node 'nowhere'")
    np.savez(tmp_path / "half.npz", **{"stem.weight": np.zeros((4, 2, 3, 3), np.float32)})
    wrong = shell(capsys, command, file, "--forward", "-o", output, "--state", tmp_path / "half.npz")
    assert_one_error(wrong, "boost-inspect", "lacks it")
    assert not output.exists()
