"""What people with a card run, on the CPU: the same commands, the same table."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import boost_compile as bc

from . import card

ROOT = Path(__file__).parents[2]


def test_the_table_of_a_device() -> None:
    command = [sys.executable, "-m", "tests.devices.card", "--device", "CPU", "--network", "mlp", "--quick"]
    done = subprocess.run([*command, "--pipeline", "accumulate"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "CPU can be used\n" in done.stdout
    assert re.search(r"\nCPU: .+; \d{4}-\d\d-\d\d, MindSpore \d", done.stdout)
    assert re.search(r"\n\| `accumulate` \| 1 of 1 \| .+ \|\n", done.stdout)


def test_a_program_that_fails_stands_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise bc.Error("no such kernel")

    monkeypatch.setattr(card, "_verified", refuse)
    (row,) = card.rows("CPU", ["mlp", "gpt"], ["accumulate"], quick=True)
    assert str(row).startswith("| `accumulate` | 0 of 2 |")
    assert row.problems == ("mlp accumulate: no such kernel", "gpt accumulate: no such kernel")


@pytest.mark.parametrize("target", ["test-gpu", "test-ascend"])
def test_make_asks_for_the_device(target: str) -> None:
    shown = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    device = {"test-gpu": "GPU", "test-ascend": "Ascend"}[target]
    assert f"-m tests.devices.card --device {device}" in shown
