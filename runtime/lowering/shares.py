"""In a job: a matrix whose rows the ranks share out becomes the rows of this rank (see :mod:`.ranks.shares`)."""

from __future__ import annotations

from ...ir.core.graph import Graph
from ...ir.core.wording import counted
from ...ir.rewrite.ranks.collectives import WORLD
from ...ir.rewrite.ranks.shares import share_rows
from .context import Context


def applies(graph: Graph, context: Context) -> bool:
    return not context.shared.isdisjoint(graph.states)


def run(graph: Graph, context: Context) -> str:
    own = context.shared.intersection(graph.states)
    share_rows(graph, own, context.rank, context.ranks, WORLD[context.target])
    return f"rows of {counted(len(own), 'state')} shared out"
