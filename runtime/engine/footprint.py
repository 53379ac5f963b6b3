"""The memory of a session on CPU, from the program alone. Imports no MindSpore."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...ir.analysis.cost import footprint as cost
from ...ir.analysis.cost.footprint import Footprint
from ...ir.core.graph import Graph
from ...ir.core.program import Program
from ...ir.rewrite.cpu.as_run import as_run
from ...ir.rewrite.cpu.half_kernels import with_casts


def footprint(program: Program, threads: int | None = None, graphs: Mapping[str, Graph] | None = None) -> Footprint:
    """The estimate for a session of ``program`` on CPU. ``threads``: cores that it may use, by default all.
    ``graphs``: those of the schedule, :func:`.as_run`, where they are at hand."""
    names = program.schedule.graphs()
    run = (as_run(program.graphs[name]) if graphs is None else graphs[name] for name in names)
    return cost.footprint(map(with_casts, run), program.state_bytes, threads or os.cpu_count() or 1)
