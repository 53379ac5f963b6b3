"""What people with a card run: all steps on the CPU, and on the stand-in for a GPU whose kernels compute."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boost_compile as bc
from tests.waiting import PATIENCE

from ..available import built
from ..running import ENVIRONMENTS
from . import operations, promises
from .__main__ import AS
from .table import Row

ROOT = Path(__file__).parents[3]


def tables_of(device: str, *options: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The command as it ended, and the lines of its tables without their numbers."""
    command = [sys.executable, "-m", "tests.devices.card", "--device", device, "--quick", *options]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=PATIENCE
    )
    return done, [line for line in done.stdout.splitlines() if line.startswith("|")]


def test_the_steps_on_the_cpu() -> None:
    done, rows = tables_of("CPU", "--network", "mlp_adam", "--pipeline", "accumulate")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CPU can be used\n" in done.stdout
    assert re.search(r"\nCPU: .+; \d{4}-\d\d-\d\d, MindSpore \d", done.stdout)
    assert sum("| mlp_adam | `accumulate` | 0.0e+00 |" in row for row in rows) == 2
    assert any(re.fullmatch(r"\| `accumulate` \| 1 of 1 \| .+ \|", row) for row in rows)
    assert any(re.fullmatch(r"\| mlp_adam \| 4 \| [\d.]+ \| [\d.]+ \|", row) for row in rows)


@pytest.mark.slow
def test_the_steps_on_the_stand_in_for_a_gpu() -> None:
    """All pipelines; test_newer_card.py goes through the same steps with one."""
    networks = ("mlp_adam", "lenet_bn")
    asked = [option for network in networks for option in ("--network", network)]
    done, rows = tables_of("GPU", *asked, **ENVIRONMENTS[built("GPU")]())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "GPU: no device: host memory; " in done.stdout
    assert "libcublas.so.11, libcudart.so.11.0, libcudnn.so.8" in done.stdout
    for pipeline in AS:
        trained = [row for row in rows if re.match(rf"\| \w+ \| `{pipeline}` \| [\d.e+-]+ \| 2e-04 \|", row)]
        assert len(trained) == (2 if pipeline in AS[:2] else 1) * len(networks), rows
        assert any(row.startswith(f"| `{pipeline}` | 2 of 2 |") for row in rows), rows


def test_float32_in_eleven_bits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """So TF32, where it is not off, fails at the first table."""

    def coarse(rng: np.random.Generator, *shape: int) -> Any:
        exact = rng.normal(size=shape).astype(np.float32)
        return (exact.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)

    (exact,) = operations.product(np.random.default_rng(0))
    monkeypatch.setattr(operations, "_numbers", coarse)
    (rounded,) = operations.product(np.random.default_rng(0))
    assert exact.error < operations.ALLOWED
    off = operations.Outcome("matrix product", rounded.computed, exact.exact, exact.scale)
    assert off.error > 10 * operations.ALLOWED


def test_an_operation_that_fails_stands_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(operations.ops, "matmul", broken)
    rows = {row.cells[0]: row for row in operations.table().rows}
    assert rows["product"] == Row(("product", "failed", ""), ("product: no such kernel",))
    assert not rows["addition"].problems
    assert not rows["convolution"].problems


def test_a_program_that_fails_stands_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise bc.Error("no such kernel")

    monkeypatch.setattr(promises, "_verified", refuse)
    (row,) = promises.table("CPU", ["mlp", "gpt"], ["accumulate"], Path, quick=True).rows
    assert str(row).startswith("| `accumulate` | 0 of 2 |")
    assert row.problems == ("mlp accumulate: no such kernel", "gpt accumulate: no such kernel")


@pytest.mark.parametrize("target", ["test-gpu", "test-ascend"])
def test_make_asks_for_the_device(target: str) -> None:
    shown = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    device = {"test-gpu": "GPU", "test-ascend": "Ascend"}[target]
    assert f"-m tests.devices.card --device {device}" in shown
