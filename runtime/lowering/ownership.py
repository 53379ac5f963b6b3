"""In a job, on each target: updates of weights that other ranks own go, and new weights come from their owners (see
:mod:`.ranks.ownership`)."""

from __future__ import annotations

from ...ir.core.graph import Graph
from ...ir.core.wording import counted
from ...ir.rewrite.ranks.collectives import WORLD
from ...ir.rewrite.ranks.ownership import keep_own
from .context import Context


def applies(graph: Graph, context: Context) -> bool:
    return not context.holders.keys().isdisjoint(graph.states)


def run(graph: Graph, context: Context) -> str:
    own, all_ = keep_own(graph, context.program, context.rank, context.ranks, WORLD[context.target])
    return f"{own} of {counted(all_, 'weight')} updated here, and sent to all by their owners"
