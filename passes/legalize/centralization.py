"""Centralization (Ascend): x - mean(x, axis), as its documentation in mindspore.ops.Centralization defines it."""

from __future__ import annotations

from ...ir.graph import Graph
from ...ir.values import Node, Value
from .finite import SCOPE


def lower_centralization(main: Graph, nodes: list[Node]) -> None:
    for node in nodes:
        graph = node.graph
        assert graph is not None
        x = node.operand(0)
        # Without axes: over all of them.
        axes: Value = node.operand(1) if node.num_operands > 1 else graph.constant(node.attributes.get("axis", ()))
        with graph.inserting_before(node):
            mean = graph.create("ReduceMean", [x, axes, graph.constant(True)], scope=SCOPE, sources=[node])
            centred = graph.create("Sub", [x, mean], scope=SCOPE, sources=[node])
        node.replace_uses(centred)
