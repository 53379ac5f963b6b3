"""Several tensors of one element type as one: flattened and joined, and taken apart again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..core.attributes import TensorValue
from ..core.data import ZeroData
from ..core.graph import Graph, Node, Value, tensor_type
from ..core.types import TensorType


def places(sizes: Iterable[int], multiple: int = 1) -> tuple[tuple[int, ...], int]:
    """Where each of several tensors begins that stand one after the other, each at a multiple of so many elements; and
    where the next one would."""
    begins, end = [], 0
    for size in sizes:
        begins.append(end)
        end += size + -size % multiple
    return tuple(begins), end


def join(graph: Graph, values: Sequence[Value], *, scope: str, multiple: int = 1) -> Node:
    """The elements of values of fixed shapes, one value after the other, each at one of their :func:`places`: one
    tensor of one axis, with zeros in between."""
    flat: list[Value] = []
    for value in values:
        type_ = tensor_type(value)
        flat.append(_reshape(graph, value, (type_.size,), scope))
        if gap := -type_.size % multiple:
            zeros = TensorType(type_.dtype, (gap,))
            flat.append(graph.constant(TensorValue(zeros, ZeroData(zeros.nbytes))))
    whole = TensorType(tensor_type(values[0]).dtype, (sum(tensor_type(v).size for v in flat),))
    operands = [graph.create("MakeTuple", flat, scope=scope), graph.constant(0)]
    return graph.create("Concat", operands, whole, scope=scope)


def part(graph: Graph, joined: Value, begin: int, shape: tuple[int, ...], *, scope: str) -> Node:
    """The tensor of ``shape`` whose first element stands at ``begin`` of what :func:`join` made."""
    type_ = TensorType(tensor_type(joined).dtype, shape)
    flat = TensorType(type_.dtype, (type_.size,))
    bounds = [graph.constant((begin,)), graph.constant(flat.shape)]
    return _reshape(graph, graph.create("Slice", [joined, *bounds], flat, scope=scope), shape, scope)


def part_of(value: Value) -> tuple[Value, int] | None:
    """What a value is a :func:`part` of, and the place where it begins there; None where it is none."""
    slice_ = value.operand(0) if isinstance(value, Node) and value.op.name == "Reshape" else value
    if not (isinstance(slice_, Node) and slice_.op.name == "Slice" and len(tensor_type(slice_).shape) == 1):
        return None
    begin = slice_.operand(1).literal
    return (slice_.operand(0), begin[0]) if isinstance(begin, tuple) else None


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
