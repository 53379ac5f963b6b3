"""In a job, on each target: a matrix whose rows the ranks share out becomes the rows of this rank, updates of weights
that other ranks own go, those of weights that are cut work on this rank's piece, and new weights come from all ranks
(see :mod:`.ranks.shares`, :mod:`.ranks.ownership`)."""

from __future__ import annotations

from ...ir.core.graph import Graph
from ...ir.core.wording import counted
from ...ir.rewrite.ranks.collectives import WORLD
from ...ir.rewrite.ranks.ownership import keep_own
from ...ir.rewrite.ranks.shares import share_rows
from .context import Context


def applies(graph: Graph, context: Context) -> bool:
    return any(state in context.shared or not context.is_common(state) for state in graph.states)


def run(graph: Graph, context: Context) -> str:
    own = context.shared.intersection(graph.states)
    shared = [f"rows of {counted(len(own), 'state')} shared out"] if own else []
    share_rows(graph, own, context.rank, context.ranks, WORLD[context.target])
    owned = not all(map(context.is_common, graph.states))
    kept = [keep_own(graph, context.program, context.rank, context.ranks, context.target)] if owned else []
    return ", ".join(filter(None, shared + kept))
