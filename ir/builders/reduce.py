"""Reductions with the operands that MindSpore gives them: axes as a tuple, where none means all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from math import gcd

from ..core.attributes import scalar_tensor
from ..core.graph import Graph, Node, Value, tensor_type
from ..core.types import DType, TensorType
from .cast import cast

BIG = 4096
"""Elements of a tensor from which its kernels take longer to run than to start."""
LONGEST_ROW = 1024
_SHORTEST_ROW = 32


def reduce_sum(graph: Graph, value: Value, axes: Sequence[int] = (), *, keep: bool = False, scope: str = "") -> Node:
    # The last operand, skip_mode: an empty tuple of axes means all of them, not none.
    return _reduce(graph, "ReduceSum", value, axes, keep, scope, graph.constant(False))


def scalar_sum(graph: Graph, value: Value, *, scope: str) -> Value:
    """The sum of a tensor's elements as a scalar float32."""
    wide = cast(graph, value, DType.FLOAT32, scope=scope)
    return wide if tensor_type(wide).shape == () else reduce_sum(graph, wide, scope=scope)


def square_sum(graph: Graph, value: Value, *, scope: str, sources: Sequence[Value] = ()) -> Value:
    """The sum of the squares of a tensor's elements, a float32 scalar.

    A big tensor is added up by rows first: MindSpore's CPU kernel takes 4 ns an element over several axes, 0.1 over the
    last one (docs/mindir.md). Rows are short, since along a row it adds in order. A vector without equal rows of some
    length is one row.
    """
    wide = cast(graph, value, tensor_type(value).dtype.widened, scope=scope)
    type_ = tensor_type(wide)
    row = gcd(type_.size, LONGEST_ROW) if type_.is_static else 0
    by_rows = type_.is_static and type_.size >= BIG and (len(type_.shape) > 1 or row >= _SHORTEST_ROW)
    if by_rows:
        shape = (type_.size // row, row)
        rows = TensorType(type_.dtype, shape)
        wide = graph.create("Reshape", [wide, graph.constant(shape)], rows, scope=scope, sources=sources)
    total: Value = graph.create("Square", [wide], scope=scope, sources=sources)
    if by_rows:
        total = reduce_sum(graph, total, (1,), scope=scope)
    return cast(graph, reduce_sum(graph, total, scope=scope), DType.FLOAT32, scope=scope)


def reduce_mean(graph: Graph, value: Value, axes: Sequence[int] = (), *, keep: bool = False, scope: str = "") -> Node:
    return _reduce(graph, "ReduceMean", value, axes, keep, scope)


def reduce_all(graph: Graph, value: Value, *, scope: str = "") -> Node:
    return _reduce(graph, "ReduceAll", value, (), False, scope)


def reduce_any(graph: Graph, value: Value, *, scope: str = "") -> Node:
    return _reduce(graph, "ReduceAny", value, (), False, scope)


def _reduce(graph: Graph, op: str, value: Value, axes: Sequence[int], keep: bool, scope: str, *further: Value) -> Node:
    operands = [value, graph.constant(tuple(axes)), graph.constant(keep), *further]
    return graph.create(op, operands, scope=scope, sources=[value])


def all_finite(graph: Graph, values: Sequence[Value], *, scope: str, sources: Sequence[Value] = ()) -> Value:
    """A scalar bool: whether every element of every value is finite; values that are no floats are.

    A sum of squares would overflow where the value does not, and a maximum of magnitudes miss a NaN.
    """
    answers: list[Value] = []
    for value in values:
        if isinstance(value.type, TensorType) and value.type.dtype.is_float:
            finite = graph.create("IsFinite", [value], scope=scope, sources=[*sources, value])
            answers.append(reduce_all(graph, finite, scope=scope))
    return all_true(graph, answers, scope=scope, sources=sources)


def any_true(graph: Graph, answers: Iterable[Value], *, scope: str) -> Value:
    """Whether any of these scalar bools, at least one, is true."""
    return reduce(lambda a, b: graph.create("LogicalOr", [a, b], scope=scope), dict.fromkeys(answers))


def all_true(graph: Graph, answers: Sequence[Value], *, scope: str, sources: Sequence[Value] = ()) -> Value:
    """Whether all of these scalar bools are true, joined pairwise, so that no long chain has to run in order."""
    while len(answers) > 1:
        pairs = [answers[i : i + 2] for i in range(0, len(answers), 2)]
        answers = [graph.create("LogicalAnd", p, scope=scope, sources=sources) if len(p) == 2 else p[0] for p in pairs]
    return answers[0] if answers else graph.constant(scalar_tensor("bool", True))
