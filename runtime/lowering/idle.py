"""Graphs for the cycles in which nothing is measured: those of a program with ``monitor``, without what they measure.

A Switch leaves the work out in these cycles, but not what the work needs: gradients stay in memory until the end of the
step, and weights are copied. The graph without all of it costs nothing more. It is compiled besides the other one.
"""

from __future__ import annotations

from ...ir.core.graph import Graph
from ...ir.core.names import EVERY, MONITORED_CYCLES
from ...ir.core.program import Program
from ...ir.rewrite.monitors import leave_out, measured_states


def measured_every(program: Program) -> int:
    """The cycles from one that is measured to the next; 1 for a program that measures all, or nothing."""
    counter = program.state.get(MONITORED_CYCLES)
    return 1 if counter is None else int(counter.info.get(EVERY, 1))


def idle_graph(graph: Graph, program: Program) -> Graph | None:
    """A copy of a graph that measures nothing and counts the cycle; None where it would be the same, or where what is
    measured stands inside functions that do more (a self-contained file with accumulation, say)."""
    measured = measured_states(program) - {MONITORED_CYCLES}
    if measured_every(program) == 1 or measured.isdisjoint(graph.states):
        return None
    idle = graph.clone()[0]
    leave_out(idle, measured)
    return idle if measured.isdisjoint(idle.states) else None
