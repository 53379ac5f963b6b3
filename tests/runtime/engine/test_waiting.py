"""The thread that waits for a graph: it does not take the place of the threads that run it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.runtime.engine.engine import Engine
from boost_compile.runtime.engine.waiting import WakesLate

if sys.platform != "linux":
    pytest.skip("policies of threads are Linux's", allow_module_level=True)


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    yield
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of the thread that runs a graph, in each of its runs."""
    from mindspore import nn

    seen: list[int] = []
    run = nn.Cell.compile_and_run

    def noted(cell: Any, *inputs: Any) -> Any:
        seen.append(os.sched_getscheduler(0))
        return run(cell, *inputs)

    monkeypatch.setattr(nn.Cell, "compile_and_run", noted)
    return seen


def test_a_run_wakes_late_and_leaves_every_thread_as_it_was(policies: list[int]) -> None:
    from mindspore import Tensor

    program = parse_program(
        """graph @twice(%x: float32[?]) {
          %y = Add(%x, %x)
          return %y
        }"""
    )
    engine = Engine(program, "CPU", None)

    def run(values: Any) -> Any:
        return engine.run("twice", (Tensor(values),))[0].asnumpy()

    for _ in range(3):
        assert list(run(np.float32([1, 2]))) == [2, 4]
    # What MindSpore starts to compile and to run for the first time keeps the usual policy.
    assert policies == [os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_BATCH]
    assert {os.sched_getscheduler(int(thread)) for thread in os.listdir("/proc/self/task")} == {os.SCHED_OTHER}


def test_an_error_leaves_the_thread_as_it_was() -> None:
    with pytest.raises(ValueError, match="of the graph"), WakesLate():
        raise ValueError("of the graph")
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_what_a_user_chose_stays() -> None:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with WakesLate():
        assert os.sched_getscheduler(0) == os.SCHED_BATCH
    assert os.sched_getscheduler(0) == os.SCHED_BATCH


def test_a_sandbox_may_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with WakesLate():
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
