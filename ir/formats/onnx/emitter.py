"""Makes primitives in a graph, in the form and with the types that mindspore.export gives them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...builders.cast import cast
from ...core.attributes import Attribute, TensorValue, scalar_tensor
from ...core.data import from_numpy
from ...core.errors import FormatError
from ...core.graph import Graph, Node, Value, tensor_type
from ...core.inference import broadcast
from ...core.op import NO_ATTRIBUTES, Op
from ...core.primitives import facts
from ...core.types import DType, TensorType, TupleType, Type
from .operators import FORMS, FUNCTION, dtype_of, shape_of

Shape = Sequence[int]
_TRUTHS = frozenset(("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "IsInf"))


class Emitter:
    """Appends to ``graph``. ``scope`` is where in the network the nodes stand."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.scope = ""

    def emit(
        self, name: str, operands: Sequence[Value | Attribute], type_: Type | Shape,
        attributes: Mapping[str, Attribute] = NO_ATTRIBUTES,
    ) -> Node:  # fmt: skip
        """One primitive. What is not a value among the operands becomes a constant; a shape stands for a tensor of the
        first operand's element type."""
        values = [v if isinstance(v, Value) else self.graph.constant(v) for v in operands]
        if not isinstance(type_, Type):
            type_ = TensorType(tensor_type(values[0]).dtype, tuple(int(d) for d in type_))
        kind, standing = FORMS.get(name, (FUNCTION, {}))
        op = Op(name, {**facts(Op(name)).attributes, **standing, **attributes}, kind=kind)
        return self.graph.create(op, values, type_, scope=self.scope)

    def several(
        self, name: str, operands: Sequence[Value | Attribute], types: Sequence[TensorType], take: int | None = None
    ) -> list[Value]:
        """The results of a primitive that has several; the first ``take``."""
        made = self.emit(name, operands, TupleType(tuple(types), dynamic=False))
        return [self.emit("TupleGetItem", [made, i], type_) for i, type_ in enumerate(types[:take])]

    def tuple_of(self, values: Sequence[Value]) -> Node:
        return self.emit("MakeTuple", values, TupleType(tuple(v.type for v in values), dynamic=False))

    def constant(self, array: np.ndarray) -> Value:
        """A constant tensor."""
        return self.graph.constant(TensorValue(*from_numpy(array)))

    def scalar(self, like: Value, value: float) -> Value:
        """A constant tensor without axes, of the element type of ``like``."""
        dtype = dtype_of(like)
        return self.graph.constant(scalar_tensor(dtype, value if dtype.is_float else int(value)))

    # -- element by element --------------------------------------------------------------------------------------------

    def apply(self, name: str, first: Value, *others: Value | float) -> Value:
        """A primitive of tensors that broadcast; numbers are of the first operand's element type."""
        values = [first, *(v if isinstance(v, Value) else self.scalar(first, v) for v in others)]
        shape: tuple[int, ...] = ()
        for value in values:
            shape = broadcast(shape, shape_of(value))
        return self.emit(name, values, TensorType(DType.BOOL if name in _TRUTHS else dtype_of(first), shape))

    def add(self, a: Value, b: Value | float) -> Value:
        return self.apply("Add", a, b)

    def mul(self, a: Value, b: Value | float) -> Value:
        return self.apply("Mul", a, b)

    def cast(self, x: Value, dtype: DType) -> Value:
        return cast(self.graph, x, dtype, scope=self.scope)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        shape = broadcast(broadcast(shape_of(condition), shape_of(a)), shape_of(b))
        return self.emit("Select", [self.expand(v, shape) for v in (condition, a, b)], TensorType(dtype_of(a), shape))

    # -- shapes --------------------------------------------------------------------------------------------------------

    def reshape(self, x: Value, shape: Shape) -> Value:
        shape = tuple(int(d) for d in shape)
        if math.prod(shape) != math.prod(shape_of(x)):
            raise FormatError(f"{list(shape_of(x))} cannot be reshaped to {list(shape)}")
        return x if shape == shape_of(x) else self.emit("Reshape", [x, shape], shape)

    def transpose(self, x: Value, order: Shape) -> Value:
        order = tuple(int(i) for i in order)
        same = order == tuple(range(len(order)))
        return x if same else self.emit("Transpose", [x, order], [shape_of(x)[i] for i in order])

    def move_axis(self, x: Value, source: int, to: int) -> Value:
        order = list(range(len(shape_of(x))))
        order.insert(to % len(order), order.pop(source))
        return self.transpose(x, order)

    def expand(self, x: Value, shape: Shape) -> Value:
        shape = tuple(int(d) for d in shape)
        return x if shape == shape_of(x) else self.emit("BroadcastTo", [x, shape], shape)

    def slice(self, x: Value, begin: Shape, end: Shape, steps: Shape | None = None) -> Value:
        """``x[begin:end:steps]`` along all axes, none negative."""
        begin, end, by = (tuple(int(n) for n in each) for each in (begin, end, steps or [1] * len(begin)))
        shape = tuple(max(0, -(-(e - b) // s)) for b, e, s in zip(begin, end, by, strict=True))
        return x if shape == shape_of(x) else self.emit("StridedSlice", [x, begin, end, by, 0, 0, 0, 0, 0], shape)

    def part(self, x: Value, axis: int, begin: int, end: int) -> Value:
        """``x[begin:end]`` along one axis."""
        begins, ends = [0] * len(shape_of(x)), list(shape_of(x))
        begins[axis], ends[axis] = begin, end
        return self.slice(x, begins, ends)

    def reverse(self, x: Value, axis: int) -> Value:
        return self.emit("ReverseV2", [x, (axis,)], shape_of(x))

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        if len(values) == 1:
            return values[0]
        shape = list(shape_of(values[0]))
        shape[axis] = sum(shape_of(v)[axis] for v in values)
        return self.emit("Concat", [self.tuple_of(values), axis], TensorType(dtype_of(values[0]), tuple(shape)))

    def pad(self, x: Value, before: Shape, after: Shape, value: float = 0.0) -> Value:
        """Constant padding of the last axes; negative numbers cut."""
        none = [0] * (len(shape_of(x)) - len(before))
        before, after, shape = [*none, *before], [*none, *after], shape_of(x)
        x = self.slice(x, [max(-b, 0) for b in before], [d + min(a, 0) for d, a in zip(shape, after, strict=True)])
        pairs = tuple((max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True))
        if not any(map(any, pairs)):
            return x
        padded = [d + b + a for d, (b, a) in zip(shape_of(x), pairs, strict=True)]
        made = self.emit("Pad", [x], padded, {"paddings": pairs})
        if value == 0:
            return made
        # MindSpore's PadV3 takes a value, but its gradient is wrong from the second run on a CPU on (2.10).
        inner = np.zeros([d if any(pair) else 1 for d, pair in zip(shape_of(x), pairs, strict=True)])
        return self.add(made, self.constant(np.pad(inner, pairs, constant_values=value).astype(dtype_of(x).value)))

    def pick(self, x: Value, indices: Value | Sequence[int] | np.ndarray, axis: int) -> Value:
        """``x`` at indices (of one axis) along an axis."""
        at = indices if isinstance(indices, Value) else self.constant(np.asarray(indices, np.int32))
        shape = list(shape_of(x))
        shape[axis] = shape_of(at)[0]
        return self.emit("Gather", [x, at, axis, 0], shape)

    # -- products and sums ---------------------------------------------------------------------------------------------

    def matmul(self, a: Value, b: Value, transpose_a: bool = False, transpose_b: bool = False) -> Value:
        """The product of two matrices, or of two stacks of equally many."""
        (*stack, rows, inner), (*other, same, columns) = shape_of(a), shape_of(b)
        rows, inner = (inner, rows) if transpose_a else (rows, inner)
        same, columns = (columns, same) if transpose_b else (same, columns)
        if inner != same or stack != other:
            raise FormatError(f"{list(shape_of(a))} and {list(shape_of(b))} cannot be multiplied as matrices")
        name = "BatchMatMul" if stack else "MatMul"
        return self.emit(name, [a, b, transpose_a, transpose_b], [*stack, rows, columns])

    def bias(self, x: Value, bias: Value | None) -> Value:
        """``x`` with a number added for each channel."""
        if bias is None:
            return x
        rank = len(shape_of(x))
        if rank in (2, 4):
            return self.emit("BiasAdd", [x, bias, 0], shape_of(x))
        return self.add(x, self.reshape(bias, (*shape_of(bias), *(1,) * (rank - 2))))

    def reduce(self, name: str, x: Value, axes: Sequence[int], keep: bool) -> Value:
        shape = [1 if i in axes else d for i, d in enumerate(shape_of(x)) if keep or i not in axes]
        more: tuple[Any, ...] = (False,) if name == "ReduceSum" else ()
        return self.emit(name, [x, tuple(sorted(axes)), keep, *more], shape) if axes else x


def plain_type(x: Value) -> TensorType:
    """The value's own type without what it aliases."""
    return TensorType(dtype_of(x), shape_of(x))
