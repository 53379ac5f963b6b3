"""Nodes that compute a forward value again in the backward part, in the form of MindSpore's ``Cell.recompute``.

What such a node takes of the forward part passes a Depend on a gradient. Without it MindSpore's runtime would run the
node as soon as its operands are there, in the forward part, and MindSpore's own merging of equal nodes would take it
out. Scope and marks are MindSpore's (2.10), so its tools and a later compilation know the nodes for what they are.
"""

from __future__ import annotations

from ...ir.core.graph import Graph, Node, Value
from ...ir.core.names import DUPLICATED

SCOPE = "recompute_"


def waiting(graph: Graph, value: Value, gradient: Value) -> Node:
    """``value`` once ``gradient`` is there: a new Depend at the insertion point."""
    waits = graph.create("MakeTuple", [gradient], scope=SCOPE + "Default", sources=[gradient])
    found = graph.create("Depend", [value, waits], value.type, scope=SCOPE + "Default", sources=[value])
    found.marks = {"recompute_depend": True}
    return found


def mark_again(node: Node, original: Node | None) -> None:
    """Marks a node as one that computes again what ``original`` computes."""
    marks = original.marks if original is not None else {}
    node.marks = {**marks, DUPLICATED: True, "need_cse_after_recompute": True}
