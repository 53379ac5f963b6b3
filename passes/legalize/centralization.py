"""Centralization (Ascend): x - mean(x, axis), as its documentation in mindspore.ops.Centralization defines it."""

from __future__ import annotations

from ...ir.builders.reduce import reduce_mean
from ...ir.core.graph import Constant, Graph, Node
from ..framework.pattern import Match, Rewrite, any_value, op
from .scope import SCOPE


def _centred(graph: Graph, m: Match) -> Node:
    mean = reduce_mean(graph, m["x"], _axes(m.root), keep=True, scope=SCOPE)
    return graph.create("Sub", [m["x"], mean], scope=SCOPE)


def _axes(node: Node) -> tuple[int, ...]:
    """Without axes: over all of them. A tuple, where the file may have a list, which ReduceMean does not take."""
    given = node.operand(1) if node.num_operands > 1 else None
    axes = given.value if isinstance(given, Constant) else node.attributes.get("axis", ())
    return (axes,) if isinstance(axes, int) else tuple(axes)


CENTRALIZATION = Rewrite(op("Centralization", any_value("x"), ...), _centred)
