"""FloatStatus (GPU): float32[1], 1 where the operand holds an infinity or a NaN, else 0."""

from __future__ import annotations

from ...ir.builders.cast import cast
from ...ir.builders.reduce import all_finite
from ...ir.core.graph import Graph, Node
from ...ir.core.types import DType
from ..framework.pattern import Match, Rewrite, any_value, op
from .scope import SCOPE


def _status(graph: Graph, m: Match) -> Node:
    finite = all_finite(graph, [m["x"]], scope=SCOPE)
    overflow = graph.create("LogicalNot", [finite], scope=SCOPE)
    status = cast(graph, overflow, DType.FLOAT32, scope=SCOPE)
    return graph.create("Reshape", [status, graph.constant((1,))], m.root.type, scope=SCOPE)


FLOAT_STATUS = Rewrite(op("FloatStatus", any_value("x"), ...), _status)
