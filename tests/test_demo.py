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


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GLOG_v", "3")  # the module sets it for the process
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("demo")


def test_two_epochs_across_which_windows_run_are_native_training(tmp_path: Path) -> None:
    # From another folder, and with no terminal.
    arguments = [sys.executable, EXAMPLES / "demo.py", "--epochs", "2", "--output", tmp_path / "out"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    assert "$ boost-compile out/lenet.mindir --accumulate 4 --check-overflow -o out/lenet.boost" in done.stdout
    files = {"lenet.mindir", "lenet_128.mindir", "lenet.boost", "report.html"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == files
    *_, where, how, command = done.stdout.rstrip().splitlines()
    assert where == "Next: open out/report.html in a browser."
    assert "Export its training cell" in how
    assert command.split()[-4:] == ["model.mindir", "--accumulate", "4", "--verify"]
    assert (tmp_path / command.split()[0]).exists() or command.split()[0] == "boost-compile"
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Difference from out/lenet.mindir" in page
    # 250 micro-batches are 62 windows of four and a flushed one of two.
    assert re.search(r"optimizer steps +63 +63", done.stdout)
    first, second = (float(share) for share in re.findall(r"^epoch .* (\S+)%", done.stdout, re.MULTILINE))
    assert 30 < first < second, "it learns from the first epoch on"
    whole, window = (
        float(mb) for mb in re.findall(r"^ (?:one step of|4 micro).* ([\d.]+) +[\d.]+ *$", done.stdout, re.M)
    )
    assert window < whole / 3
    assert "skipped, 0 of 16 weights and momenta moved" in done.stdout
    assert "updated, 16 of 16 weights and momenta moved" in done.stdout


def test_what_tells_trainings_apart_fails(demo: Any) -> None:
    native = np.array([2.0, 1.0])
    assert demo.training_failures(31, 31, native * 1.001, native) == []
    assert demo.training_failures(30, 31, native, native) == ["30 optimizer steps, 31 in native training"]
    for losses in (np.array([2.0, 1.1]), np.array([2.0, np.nan]), np.array([2.0])):
        assert len(demo.training_failures(31, 31, losses, native)) == 1


def test_accuracy_is_held_to_the_native_one_and_after_five_epochs_to_a_figure(demo: Any) -> None:
    assert demo.accuracy_failures(5, 0.95, 0.955) == []
    assert len(demo.accuracy_failures(5, 0.89, 0.89)) == 1
    assert demo.accuracy_failures(1, 0.1, 0.1) == []
    assert len(demo.accuracy_failures(1, 0.1, 0.13)) == 1
    assert len(demo.accuracy_failures(5, float("nan"), 0.95)) == 2
