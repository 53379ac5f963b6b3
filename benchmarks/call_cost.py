"""What a step costs beside its graph: inputs, the search for the compiled graph, results.

The compiled graph alone is what MindSpore's executor takes for it, called with Tensors that are there already.

    python -m benchmarks.call_cost
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import mindspore as ms
import numpy as np
from boost_compile.ir.core.program import Program
from boost_compile.ir.text import parse_program
from mindspore.nn import cell

import boost_compile as bc
from benchmarks.tables import table

CALLS = 2000


def program(states: int) -> Program:
    """Adds its input to so many states."""
    lines, token = [], "umonad"
    for k in range(states):
        lines += [
            f"%a{k} = AssignAdd(%w{k}, %x, {token}) : float32[4]",
            f"%t{k} = UpdateState({token}, %a{k})",
        ]
        token = f"%t{k}"
    lines += [f"%r = Depend(%x, {token}) : float32[4]", "return %r"]
    declared = "".join(f"state %w{k}: float32[4] role=weight\n" for k in range(states))
    return parse_program(declared + "graph @step(%x: float32[4]) {\n" + "\n".join(lines) + "\n}\n")


def microseconds(*calls: Callable[[], object]) -> list[list[float]]:
    """Of each of the calls, made in turns."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(CALLS):
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            taken.append((time.perf_counter() - start) * 1e6)
    return times


def row(states: int) -> list[str]:
    session = bc.Session(program(states))
    array = np.ones(4, np.float32)
    tensor = ms.Tensor(array)
    session.step(array)
    runner = session._engine._runners["step"]
    executor = cell._cell_graph_executor._graph_executor
    times = microseconds(lambda: session.step(array), lambda: executor((tensor,), runner.compile_phase))
    step, alone = (statistics.quantiles(taken, n=10) for taken in times)
    shown = [f"{tenths[4]:.0f} µs ({tenths[0]:.0f} to {tenths[8]:.0f})" for tenths in (step, alone)]
    return [str(states), *shown, f"{step[4] - alone[4]:.0f} µs"]


NOTES = f"""\
A program that adds its input, a numpy array, to so many states: medians of {CALLS:,} calls of each, in turns, with the
first and the last tenth. Goal: at most 100 µs beside the graph."""


def run() -> str:
    columns = ["states", "Session.step", "the compiled graph alone", "beside it"]
    return "\n".join([NOTES, "", *table(columns, [row(states) for states in (1, 40, 160)])])


if __name__ == "__main__":
    print(run())
