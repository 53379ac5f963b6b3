"""boost-run: files that it must not replace, options that belong to others; all said before anything is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from boost_compile.tools.inspect import command as inspect_command
from boost_compile.tools.run import command

import boost_compile as bc

from .support import assert_one_error, shell

MATERIAL = Path(__file__).parents[1] / "material"
FORWARD = """
state %w: float32[8,4]<zeros>
state %b: float32[4]<zeros>
graph @net(%x: float32[4,8]) {
  state %w: float32[8,4]
  state %b: float32[4]
  const %u = umonad
  const %no = false
  %wv = Load(%w, %u) : float32[8,4]
  %bv = Load(%b, %u) : float32[4]
  %h = MatMul(%x, %wv, %no, %no) : float32[4,4]
  %y = BiasAdd(%h, %bv, 0) : float32[4,4]
  return %y
}
"""
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def files(here: Path) -> dict[str, bytes]:
    """A program, data and a log of a training; the bytes of the last two."""
    bc.load(MATERIAL / "mlp.ir").save("mlp.boost")
    np.savez("data.npz", np.zeros((4, 4), np.float32))
    Path("run.jsonl").write_text('{"event": "begin", "cycle": 0}\n{"event": "cyc')
    return {name: Path(name).read_bytes() for name in ("data.npz", "run.jsonl")}


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("--log", "jsonl:data.npz"), "'data.npz' exists, and is no log of a training"),
        (("--log", "jsonl:data.npz", "--resume", "x.ckpt"), "'data.npz' exists, and is no log of a training"),
        (("--log", "jsonl:mlp.boost/run.jsonl"), "mlp.boost' is a program"),
        (("--log", "mindinsight:mlp.boost"), "mlp.boost' is a program"),
        (("--log", "jsonl:x.ckpt", "--save", "x.ckpt"), "--save and --log jsonl:x.ckpt write the same file"),
        (("--save", "x.ckpt", "--save-weights", "./x.ckpt"), "--save and --save-weights write the same file"),
        (("--save", "x.safetensors", "--save-adapter", "x.safetensors"), "--save and --save-adapter write the same"),
        (("--log", "jsonl:run.jsonl", "--keep", "3", "--save", "x.ckpt"), "--keep needs --save with --save-every"),
        (("--save", "x.ckpt", "--sync", "average"), "--sync average is for jobs of several ranks"),
        (("--ranks", "2", "--sync", "average"), "--sync average says what --save writes"),
        (("--check-replicas", "2"), "--check-replicas is for jobs of several ranks"),
        (("--log-dir", "logs"), "--log-dir is for jobs of several ranks"),
        (("--ranks", "2", "--hosts", "hosts.txt"), "hosts.txt: no such file"),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: tuple[str, ...], fragment: str, files: dict[str, bytes], here: Path, capsys: Capture
) -> None:
    before = set(here.rglob("*"))
    assert_one_error(shell(capsys, command, "mlp.boost", "--data", "data.npz", *arguments), "boost-run", fragment)
    assert set(here.rglob("*")) == before
    assert {name: Path(name).read_bytes() for name in files} == files


@pytest.mark.mindspore
def test_labels_of_no_class_lead_to_the_doctor(here: Path, capsys: Capture) -> None:
    np.savez("data.npz", np.zeros((4, 8), np.float32), np.full(4, 9, np.int32))
    done = shell(capsys, command, MATERIAL / "mlp.ir", "--data", "data.npz", "-q")
    assert_one_error(done, "boost-run", "boost-inspect PROGRAM --doctor --data FILE.npz names them")
    found = shell(capsys, inspect_command, MATERIAL / "mlp.ir", "--doctor", "--data", "data.npz")
    assert "input 'inputs1': 4 values outside of 0 to 3, the first is 9" in found.out


@pytest.mark.mindspore
def test_a_forward_graph_does_not_say_which_state_is_a_weight(here: Path, capsys: Capture) -> None:
    Path("net.ir").write_text(FORWARD)
    np.savez("part.npz", w=np.ones((8, 4), np.float32))
    np.savez("data.npz", np.zeros((4, 8), np.float32), np.zeros(4, np.int32))
    evaluating = ("--eval", "data.npz", "--metric", "accuracy", "--load", "part.npz", "--partial")
    done = shell(capsys, command, "net.ir", *evaluating)
    assert done.code == 0, done.err
    assert "part.npz: 1 of the program's 2 states were loaded." in done.err


def test_the_log_of_the_api_replaces_logs_alone(files: dict[str, bytes]) -> None:
    bc.Log("jsonl:run.jsonl", "jsonl:other.jsonl")
    with pytest.raises(bc.Error, match=r"'data.npz' exists, and is no log of a training"):
        bc.Log("jsonl:data.npz")
