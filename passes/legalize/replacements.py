"""What stands for an overflow test or a centralization that the target has no kernel for."""

from __future__ import annotations

from ...ir.builders.cast import cast
from ...ir.builders.reduce import all_finite, reduce_mean
from ...ir.core.errors import PassError
from ...ir.core.graph import Constant, Graph, Node, Value
from ...ir.core.sites import site
from ...ir.core.types import DType, TupleType
from ..framework.pattern import Match, Rewrite, any_value, op

SCOPE = "legalize"


def _status(graph: Graph, m: Match) -> Node:
    """FloatStatus (GPU): float32[1], 1 where the operand holds an infinity or a NaN, else 0."""
    finite = all_finite(graph, [m["x"]], scope=SCOPE)
    overflow = graph.create("LogicalNot", [finite], scope=SCOPE)
    status = cast(graph, overflow, DType.FLOAT32, scope=SCOPE)
    return graph.create("Reshape", [status, graph.constant((1,))], m.root.type, scope=SCOPE)


def _overflow(graph: Graph, m: Match) -> Node:
    """AllFinite (Ascend): bool[], in spite of its name True where any of its operands' elements is not finite
    (``_get_distributed_overflow_status_on_infnan_enable_allfinite`` in mindspore/nn/wrap/loss_scale.py takes it as the
    overflow flag)."""
    values = [v for operand in m.root.operands for v in _elements(graph, operand)]
    finite = all_finite(graph, values, scope=SCOPE)
    return graph.create("LogicalNot", [finite], scope=SCOPE)


def _elements(graph: Graph, value: Value) -> list[Value]:
    """The tensors of a tuple, which need not have been made here: a function's input may be one."""
    if not isinstance(value.type, TupleType):
        return [value]
    if value.type.dynamic:
        raise PassError(
            f"graph '{graph.name}': {site(value)} has no fixed number of elements: cannot test each of them"
        )
    if isinstance(value, Node) and value.op.name == "MakeTuple":
        return [e for operand in value.operands for e in _elements(graph, operand)]
    found: list[Value] = []
    for i in range(len(value.type.elements)):
        item = graph.create("TupleGetItem", [value, graph.constant(i)], scope=SCOPE)
        found.extend(_elements(graph, item))
    return found


def _centred(graph: Graph, m: Match) -> Node:
    """Centralization (Ascend): x - mean(x, axis), as its documentation in mindspore.ops.Centralization defines it."""
    mean = reduce_mean(graph, m["x"], _axes(m.root), keep=True, scope=SCOPE)
    return graph.create("Sub", [m["x"], mean], scope=SCOPE)


def _axes(node: Node) -> tuple[int, ...]:
    """Without axes: over all of them. A tuple, where the file may have a list, which ReduceMean does not take."""
    given = node.operand(1) if node.num_operands > 1 else None
    axes = given.value if isinstance(given, Constant) else node.attributes.get("axis", ())
    return (axes,) if isinstance(axes, int) else tuple(axes)


REPLACEMENTS = {
    "FloatStatus": Rewrite(op("FloatStatus", any_value("x"), ...), _status),
    "AllFinite": Rewrite(op("AllFinite", ...), _overflow),
    "Centralization": Rewrite(op("Centralization", any_value("x"), ...), _centred),
}
