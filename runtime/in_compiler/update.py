"""The update at the end of a window, where the host runs it behind the step: a graph of its own, as in a session.

MindSpore hands each weight, slot and accumulator over to the functions behind a Switch, whichever runs, and that takes
as long as a kernel takes to start. So where the host sees each call of a step, and reads a count without waiting for a
device, the step accumulates, and no Switch is in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from ...ir.core.errors import RuntimeFailure
from ...ir.core.primitives import CPU
from ...ir.core.program import Entry, Program, Schedule
from ..engine.engine import Engine, flat_outputs
from ..engine.live import LiveCell
from ..lowering.context import Context


def accumulating_graph(program: Program, context: Context, results: Collection[str]) -> str | None:
    """The graph that each call runs, where the one that updates can be left to :class:`Update`: the host of a CPU runs
    it, in a process by itself, behind the last micro-batch, and the ``results`` of the step are those of the other.
    None where one graph must do both."""
    schedule, cycle = program.schedule, program.schedule.cycle
    if context.target != CPU or context.ranks > 1 or schedule.choice or schedule.search or schedule.count is None:
        return None
    apart = len(cycle) == 2 and cycle[1:] == (Entry(schedule.flush or ""),)
    return cycle[0].graph if apart and set(results) <= set(program.graphs[cycle[0].graph].outputs) else None


class Update:
    """Runs the graph that updates, on the Parameters of the step, ``parameters`` by the names of ``program``."""

    def __init__(self, program: Program, parameters: Mapping[str, Any]):
        first, last = program.schedule.cycle
        assert program.schedule.count is not None
        self._steps, self._count, self._graph = first.repeat, program.schedule.count, program.graphs[last.graph]
        state = {name: program.state[name] for name in self._graph.states}
        alone = replace(program, state=state, schedule=Schedule((last,)))
        live = LiveCell(parameters, {n: v.data for n, v in state.items()}, {}, lambda *_: program)
        self._engine = Engine(alone, CPU, None, live)
        if lost := state.keys() - self._engine.given.keys():
            raise RuntimeFailure(f"the update of the step writes '{min(lost)}', which the step has no Parameter for.")

    def is_due(self) -> bool:
        """Whether the window has all its micro-batches."""
        return bool(self._engine.memory.look(self._count) >= self._steps)

    def run(self) -> Mapping[str, Any]:
        """Updates, begins a new window, and returns what the update reports, by name."""
        return flat_outputs(self._graph, self._engine.run(self._graph.name, ()))
