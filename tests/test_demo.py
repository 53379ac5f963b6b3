"""The demo as a user runs it, and that its own checks see what they are there to see."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

INITIAL = {"w": np.zeros(3, np.float32), "rate": np.float32(0.05), "global_step": np.array([0], np.int32)}
NATIVE = {"w": np.ones(3, np.float32), "rate": np.float32(0.05), "global_step": np.array([31], np.int32)}


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GLOG_v", "3")  # the module sets it for the process
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("demo")


def test_two_epochs_across_which_cycles_run_are_native_training(tmp_path: Path) -> None:
    # From another folder, and with no terminal.
    arguments = [sys.executable, EXAMPLES / "demo.py", "--epochs", "2", "--output", tmp_path / "out"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    assert "$ boost-compile out/lenet.mindir --accumulate 4 -o out/lenet.boost" in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "lenet.mindir",
        "lenet.boost",
        "lenet_self_contained.mindir",
        "report.html",
    }
    *_, where, how, command = done.stdout.rstrip().splitlines()
    assert where == "Next: open out/report.html in a browser."
    assert "Export its training cell" in how
    assert command.split()[-4:] == ["model.mindir", "--accumulate", "4", "--verify"]
    assert (tmp_path / command.split()[0]).exists() or command.split()[0] == "boost-compile"
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Difference from out/lenet.mindir" in page
    # 250 micro-batches are 62 cycles of four and a flushed one of two; the first epoch holds 31 whole ones.
    rows = re.findall(r"^ *(lenet\S+) +(\d+) .* of (\d+) *$", done.stdout, re.MULTILINE)
    single = "lenet_self_contained.mindir"
    assert rows == [("lenet.boost", "31", "19"), ("lenet.boost", "63", "19"), (single, "31", "19")]


def failures(demo: Any, epoch: int = 1, losses: tuple[float, ...] = (2.0, 1.0), **ours: Any) -> list[str]:
    found = demo.difference("it", epoch, {**NATIVE, **ours}, NATIVE, INITIAL, list(losses), [2.0, 1.0])
    return found.failures()


def test_equal_training_passes_and_extra_states_are_ours(demo: Any) -> None:
    assert failures(demo, extra=np.ones(2)) == []


@pytest.mark.parametrize("epoch", [1, 2, 10])
@pytest.mark.parametrize(
    "ours",
    [
        {"w": np.float32([1, 1, np.nan])},
        {"w": np.zeros(3, np.float32) - 0.5},
        {"rate": np.float32(0.051)},
        {"global_step": np.array([30], np.int32)},
        {"losses": (2.0, np.nan)},
        {"losses": (2.0,)},
    ],
)
def test_a_wrong_state_fails_in_every_epoch(demo: Any, epoch: int, ours: Any) -> None:
    assert len(failures(demo, epoch, **ours)) == 1


def test_early_epochs_are_held_to_rounding(demo: Any) -> None:
    off = {"w": np.float32([1, 1, 1.0005])}
    assert failures(demo, 1, **off) == ["it: a state is off by 5.0e-04 after 31 steps, rounding makes up to 1e-04"]
    assert failures(demo, 2, **off) == []
    assert len(failures(demo, 2, losses=(2.0, 1.00001))) == 1
    assert failures(demo, 3, losses=(2.0, 1.1)) == []


def test_a_missing_state_is_an_error(demo: Any) -> None:
    with pytest.raises(KeyError, match="w"):
        demo.difference("it", 1, {}, NATIVE, INITIAL, [1.0], [1.0])


def test_accuracy_is_held_to_the_native_one_and_after_ten_epochs_to_a_figure(demo: Any) -> None:
    assert demo.accuracy_failures(10, 0.95, 0.955) == []
    assert len(demo.accuracy_failures(10, 0.89, 0.89)) == 1
    assert demo.accuracy_failures(1, 0.1, 0.1) == []
    assert len(demo.accuracy_failures(1, 0.1, 0.13)) == 1
    assert len(demo.accuracy_failures(10, float("nan"), 0.95)) == 2
