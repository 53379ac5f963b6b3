"""Centralization (Ascend): x - mean(x, axis), as its documentation in mindspore.ops.Centralization defines it."""

from __future__ import annotations

from ...ir.graph import Graph
from ...ir.reductions import reduce_mean
from ...ir.values import Constant, Node
from .scope import SCOPE


def lower_centralization(main: Graph, nodes: list[Node]) -> None:
    for node in nodes:
        graph = node.graph
        assert graph is not None
        x = node.operand(0)
        with graph.inserting_before(node):
            mean = reduce_mean(graph, x, _axes(node), keep=True, scope=SCOPE)
            centred = graph.create("Sub", [x, mean], scope=SCOPE, sources=[node])
        node.replace_uses(centred)


def _axes(node: Node) -> tuple[int, ...]:
    """Without axes: over all of them. A tuple, where the file may have a list, which ReduceMean does not take."""
    given = node.operand(1) if node.num_operands > 1 else None
    axes = given.value if isinstance(given, Constant) else node.attributes.get("axis", ())
    return (axes,) if isinstance(axes, int) else tuple(axes)
