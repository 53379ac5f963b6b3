"""Nodes of one scope: arithmetic in a graph, written as arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.attributes import Attribute, scalar_tensor
from ..core.graph import Constant, Graph, Node, Value, tensor_type
from ..core.op import NO_ATTRIBUTES
from ..core.types import DType, TensorType
from .cast import cast


class Nodes:
    """Makes nodes in ``graph``, at its insertion point, with ``scope``. ``primal``: the links between forward and
    backward that each of them gets."""

    def __init__(self, graph: Graph, scope: str, primal: Mapping[str, Attribute] = NO_ATTRIBUTES):
        self.graph = graph
        self.scope = scope
        self.primal = primal

    def op(self, name: str, *operands: Value) -> Node:
        return self.linked(self.graph.create(name, operands, scope=self.scope))

    def linked(self, node: Node) -> Node:
        node.primal = self.primal
        return node

    def number(self, value: float, dtype: str = "float32") -> Constant:
        """A scalar tensor."""
        return self.graph.constant(scalar_tensor(dtype, value))

    def cast(self, value: Value, dtype: DType) -> Value:
        made = cast(self.graph, value, dtype, scope=self.scope)
        return self.linked(made) if isinstance(made, Node) and made is not value else value

    def scaled(self, value: Value, factor: float) -> Value:
        """A value times a number of Python, in its own type; itself where that is 1."""
        return value if factor == 1.0 else self.op("Mul", value, self.number(factor, tensor_type(value).dtype.value))

    def reshape(self, value: Value, *shape: int) -> Value:
        """At most one dimension may be -1: that of a batch of any size."""
        if tensor_type(value).shape == shape:
            return value
        return self._typed("Reshape", [value, self.graph.constant(shape)], value, shape)

    def transpose(self, value: Value, *order: int) -> Value:
        shape = [tensor_type(value).shape[i] for i in order]
        return self._typed("Transpose", [value, self.graph.constant(order)], value, shape)

    def matmul(self, a: Value, b: Value, *, transpose_a: bool = False, transpose_b: bool = False) -> Node:
        rows = tensor_type(a).shape[1 if transpose_a else 0]
        columns = tensor_type(b).shape[0 if transpose_b else 1]
        flags = [self.graph.constant(transpose_a), self.graph.constant(transpose_b)]
        return self._typed("MatMul", [a, b, *flags], a, (rows, columns))

    def _typed(self, name: str, operands: Sequence[Value], like: Value, shape: Sequence[int]) -> Node:
        type_ = TensorType(tensor_type(like).dtype, tuple(shape))
        return self.linked(self.graph.create(name, operands, type_, scope=self.scope))
