"""The memory of a session on CPU, from the program alone. Imports no MindSpore."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...ir.analysis.cost import footprint as cost
from ...ir.analysis.cost.footprint import Footprint
from ...ir.analysis.cost.running_order import running_order
from ...ir.core.graph import Graph
from ...ir.core.primitives import CPU
from ...ir.core.program import Program
from ..lowering import broadcasting, clearing, staggering
from ..lowering.context import Context
from ..lowering.lower import lower


def footprint(program: Program, threads: int | None = None, graphs: Mapping[str, Graph] | None = None) -> Footprint:
    """The estimate for a session of ``program`` on CPU. ``threads``: cores that it may use, by default all.
    ``graphs``: those of the schedule, :func:`as_run`, where they are at hand."""
    state = program.state_bytes
    run = (as_run(program, name) if graphs is None else graphs[name] for name in program.schedule.graphs())
    return cost.footprint(run, state, threads or os.cpu_count() or 1)


def as_run(program: Program, name: str) -> Graph:
    """A copy of a graph as it fills memory in a session on CPU, its nodes in the order in which they run."""
    graph = lower(program.graphs[name], Context(program, CPU), (broadcasting, clearing, staggering)).graph.clone()[0]
    for part in graph.all_graphs():
        part.reorder(running_order(part))
    return graph
