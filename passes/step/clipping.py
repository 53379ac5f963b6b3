"""The arithmetic of clipping: norms, and what makes gradients no longer than a limit. All of it in float32 at least."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.builders.cast import cast
from ...ir.core.attributes import scalar_tensor
from ...ir.core.graph import Graph, Value, tensor_type
from ...ir.core.names import SQUARES

SCOPE = "clip-gradients"


def widened(graph: Graph, value: Value) -> Value:
    return cast(graph, value, tensor_type(value).dtype.widened, scope=SCOPE)


def norm(graph: Graph, squares: Sequence[Value]) -> Value:
    """The norm of all gradients with these sums of squares, as one vector."""
    total = squares[0]
    if len(squares) > 1:
        added = graph.create("AddN", [graph.create("MakeTuple", squares, scope=SCOPE)], scope=SCOPE)
        added.marks = {SQUARES: True}
        total = added
    return graph.create("Sqrt", [total], scope=SCOPE)


def factor(graph: Graph, length: Value, limit: float) -> Value:
    """At most one, and one exactly for a norm within the limit; the divisor is never less than the limit."""
    bound = graph.constant(scalar_tensor("float32", limit))
    divisor = graph.create("Maximum", [length, bound], scope=SCOPE)
    return graph.create("RealDiv", [bound, divisor], scope=SCOPE)


def times(graph: Graph, value: Value, by: Value) -> Value:
    """A gradient by a float32 scalar, in the gradient's type."""
    wide = widened(graph, value)
    operands = [wide, cast(graph, by, tensor_type(wide).dtype, scope=SCOPE)]
    product = graph.create("Mul", operands, scope=SCOPE, sources=[value])
    return cast(graph, product, tensor_type(value).dtype, scope=SCOPE)


def between(graph: Graph, value: Value, high: Value, low: Value | None = None) -> Value:
    """A gradient whose elements lie between ``low`` (``-high`` without it) and ``high``, scalars, in its own type."""
    wide = widened(graph, value)
    high = cast(graph, high, tensor_type(wide).dtype, scope=SCOPE)
    low = graph.create("Neg", [high], scope=SCOPE) if low is None else low
    for op, bound in (("Minimum", high), ("Maximum", low)):
        wide = graph.create(op, [wide, bound], scope=SCOPE, sources=[value])
    return cast(graph, wide, tensor_type(value).dtype, scope=SCOPE)
