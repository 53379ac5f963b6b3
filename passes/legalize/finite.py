"""The test of values for infinities and NaN, in primitives that every target has."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.attributes import scalar_tensor
from ...ir.graph import Graph
from ...ir.types import TensorType
from ...ir.values import Value

SCOPE = "legalize"


def all_finite(graph: Graph, values: Sequence[Value], source: Value) -> Value:
    """bool[]: whether every element of every value is finite. Values that are no floats are. ``source`` is what asked.

    One IsFinite and one ReduceAll a value, joined by a balanced tree of LogicalAnd. Nothing cheaper is right: a sum
    of squares overflows where the gradient does not, and the maximum of the magnitudes misses a NaN.
    """
    flags = [_finite(graph, v, source) for v in values if isinstance(v.type, TensorType) and v.type.dtype.is_float]
    while len(flags) > 1:
        pairs = [
            graph.create("LogicalAnd", list(pair), scope=SCOPE, sources=[source])
            for pair in zip(flags[::2], flags[1::2], strict=False)
        ]
        flags = pairs + flags[len(pairs) * 2 :]
    return flags[0] if flags else graph.constant(scalar_tensor("bool", True))


def _finite(graph: Graph, value: Value, source: Value) -> Value:
    finite = graph.create("IsFinite", [value], scope=SCOPE, sources=[source, value])
    axes, keep_dims = graph.constant(None), graph.constant(False)
    return graph.create("ReduceAll", [finite, axes, keep_dims], scope=SCOPE, sources=[source, value])
