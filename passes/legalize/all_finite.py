"""AllFinite (Ascend): bool[], in spite of its name True where any of its operands' elements is not finite
(``_get_distributed_overflow_status_on_infnan_enable_allfinite`` in mindspore/nn/wrap/loss_scale.py takes it as the
overflow flag)."""

from __future__ import annotations

from ...ir.builders.reduce import all_finite
from ...ir.core.errors import PassError
from ...ir.core.graph import Graph, Node, Value
from ...ir.core.types import TupleType
from ..framework.pattern import Match, Rewrite, op
from .scope import SCOPE


def _overflow(graph: Graph, m: Match) -> Node:
    values = [v for operand in m.root.operands for v in _elements(graph, operand)]
    finite = all_finite(graph, values, scope=SCOPE)
    return graph.create("LogicalNot", [finite], scope=SCOPE)


def _elements(graph: Graph, value: Value) -> list[Value]:
    """The tensors of a tuple, which need not have been made here: a function's input may be one."""
    if not isinstance(value.type, TupleType):
        return [value]
    if value.type.dynamic:
        raise PassError(f"graph '{graph.name}': {value!r} has no fixed number of elements: cannot test each of them")
    if isinstance(value, Node) and value.op.name == "MakeTuple":
        return [e for operand in value.operands for e in _elements(graph, operand)]
    found: list[Value] = []
    for i in range(len(value.type.elements)):
        item = graph.create("TupleGetItem", [value, graph.constant(i)], scope=SCOPE)
        found.extend(_elements(graph, item))
    return found


ALL_FINITE = Rewrite(op("AllFinite", ...), _overflow)
