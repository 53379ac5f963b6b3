"""Several tensors of one element type as one: flattened and joined, and taken apart again."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.graph import Graph, Node, Value, tensor_type
from ..core.types import TensorType


def join(graph: Graph, values: Sequence[Value], *, scope: str) -> Node:
    """The elements of values of fixed shapes, one value after the other: one tensor of one axis."""
    flat = [_reshape(graph, value, (tensor_type(value).size,), scope) for value in values]
    whole = TensorType(tensor_type(values[0]).dtype, (sum(tensor_type(v).size for v in flat),))
    operands = [graph.create("MakeTuple", flat, scope=scope), graph.constant(0)]
    return graph.create("Concat", operands, whole, scope=scope)


def part(graph: Graph, joined: Value, begin: int, shape: tuple[int, ...], *, scope: str) -> Node:
    """The tensor of ``shape`` whose first element stands at ``begin`` of what :func:`join` made."""
    type_ = TensorType(tensor_type(joined).dtype, shape)
    flat = TensorType(type_.dtype, (type_.size,))
    bounds = [graph.constant((begin,)), graph.constant(flat.shape)]
    return _reshape(graph, graph.create("Slice", [joined, *bounds], flat, scope=scope), shape, scope)


def without_idle_reshape(graph: Graph, value: Value) -> Value:
    """A new value; where it is a Reshape that keeps the shape, which takes a kernel too, what it reshapes."""
    if not (isinstance(value, Node) and value.op.name == "Reshape" and value.operand(0).type == value.type):
        return value
    same = value.operand(0)
    value.replace_uses(same)
    graph.erase(value)
    return same


def _reshape(graph: Graph, value: Value, shape: tuple[int, ...], scope: str) -> Node:
    type_ = TensorType(tensor_type(value).dtype, shape)
    return graph.create("Reshape", [value, graph.constant(shape)], type_, scope=scope, sources=[value])
