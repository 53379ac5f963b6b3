"""FloatStatus (GPU): float32[1], 1 where the operand holds an infinity or a NaN, else 0."""

from __future__ import annotations

from ...ir.dtypes import cast
from ...ir.graph import Graph
from ...ir.reductions import all_finite
from ...ir.types import DType
from ...ir.values import Node
from .scope import SCOPE


def lower_float_status(main: Graph, nodes: list[Node]) -> None:
    for node in nodes:
        graph = node.graph
        assert graph is not None
        with graph.inserting_before(node):
            finite = all_finite(graph, [node.operand(0)], scope=SCOPE, sources=[node])
            overflow = graph.create("LogicalNot", [finite], scope=SCOPE, sources=[node])
            status = cast(graph, overflow, DType.FLOAT32, scope=SCOPE)
            shape = graph.constant((1,))
            status = graph.create("Reshape", [status, shape], node.type, scope=SCOPE, sources=[node])
        node.replace_uses(status)
