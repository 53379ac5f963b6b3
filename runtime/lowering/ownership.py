"""In a job, on each target: updates of weights that other ranks own go, those of weights that are cut work on this
rank's piece, and new weights come from all ranks (see :mod:`.ranks.ownership`)."""

from __future__ import annotations

from ...ir.core.graph import Graph
from ...ir.rewrite.ranks.ownership import keep_own
from .context import Context


def applies(graph: Graph, context: Context) -> bool:
    return any(state in context.holders or state in context.pieces for state in graph.states)


def run(graph: Graph, context: Context) -> str:
    return keep_own(graph, context.program, context.rank, context.ranks, context.target)
