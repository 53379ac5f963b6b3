"""In a process that is alone, on each target: collectives, which would wait for others, become what they take."""

from __future__ import annotations

from ...ir.core.errors import RuntimeFailure
from ...ir.core.graph import Graph
from ...ir.core.names import STAGE
from ...ir.core.wording import counted
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.ranks.buckets import ALL_REDUCE, source_of
from ...ir.rewrite.ranks.collectives import is_collective
from .context import Context

IDENTITY = frozenset({"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AlltoAll", "Reduce"})
"""Collectives that give a single rank what it put in."""


def applies(graph: Graph, context: Context) -> bool:
    if context.ranks > 1:
        return False
    return any(n.marks.get(STAGE) == ALL_REDUCE or is_collective(n) for n in graph.all_nodes())


def run(graph: Graph, context: Context) -> str:
    removed = 0
    for body in graph.all_graphs():
        effects = Effects(body)
        for node in list(body):
            if node.marks.get(STAGE) == ALL_REDUCE:
                node.replace_uses(source_of(node))
        for node in [n for n in body if is_collective(n)]:
            size = node.attributes.get("rank_size", 1)
            if node.op.name not in IDENTITY or size not in (0, 1):
                raise RuntimeFailure(
                    f"graph '{graph.name}' holds {node!r}, which needs other ranks, and this process is alone: start "
                    "it with msrun"
                )
            node.replace_uses(node.operand(0))
            removed += 1
        effects.commit()
    return f"{counted(removed, 'collective')} removed"
