"""Makes primitives in a graph, in the form and with the types that mindspore.export gives them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....builders.cast import cast
from ....core.attributes import Attribute, TensorValue, scalar_tensor
from ....core.data import from_numpy
from ....core.errors import FormatError
from ....core.graph import Graph, Node, Value, tensor_type
from ....core.inference import broadcast
from ....core.op import NO_ATTRIBUTES, Op
from ....core.primitives import facts
from ....core.types import DType, TensorType, TupleType, Type
from ..operators import CLASS, FUNCTION, ROWS, dtype_of, shape_of

Shape = Sequence[int]
_FORMS = {row.primitive: row for row in ROWS}


class Emitter:
    """Appends to ``graph``. ``scope`` is where in the network the nodes stand."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.scope = ""

    def emit(
        self, name: str, operands: Sequence[Value | Attribute], type_: Type | Shape,
        attributes: Mapping[str, Attribute] = NO_ATTRIBUTES, kind: int = FUNCTION,
    ) -> Node:  # fmt: skip
        """One primitive. What is no value among the operands becomes a constant; a shape stands for a tensor of the
        first operand's element type."""
        values = [v if isinstance(v, Value) else self.graph.constant(v) for v in operands]
        if not isinstance(type_, Type):
            type_ = TensorType(tensor_type(values[0]).dtype, tuple(int(d) for d in type_))
        standing = {**facts(Op(name)).attributes, **attributes}
        return self.graph.create(Op(name, standing, kind=kind), values, type_, scope=self.scope)

    def constant(self, array: np.ndarray) -> Value:
        """A constant tensor."""
        return self.graph.constant(TensorValue(*from_numpy(array)))

    def scalar(self, like: Value, value: float) -> Value:
        """A constant tensor without axes, of the element type of ``like``."""
        dtype = tensor_type(like).dtype
        return self.graph.constant(scalar_tensor(dtype, value if dtype.is_float else int(value)))

    # -- element by element --------------------------------------------------------------------------------------------

    def apply(self, name: str, *operands: Value | float, dtype: DType | None = None) -> Value:
        """A primitive of tensors that broadcast; numbers are of the first operand's element type."""
        first = operands[0]
        assert isinstance(first, Value)
        values = [v if isinstance(v, Value) else self.scalar(first, v) for v in operands]
        shape: tuple[int, ...] = ()
        for value in values:
            shape = broadcast(shape, shape_of(value))
        row = _FORMS.get(name)
        attributes, kind = (row.attributes, row.kind) if row is not None else (NO_ATTRIBUTES, FUNCTION)
        return self.emit(name, values, TensorType(dtype or dtype_of(first), shape), attributes, kind)

    def add(self, a: Value, b: Value | float) -> Value:
        return self.apply("Add", a, b)

    def mul(self, a: Value, b: Value | float) -> Value:
        return self.apply("Mul", a, b)

    def compare(self, name: str, a: Value, b: Value | float) -> Value:
        return self.apply(name, a, b, dtype=DType.BOOL)

    def cast(self, x: Value, dtype: DType) -> Value:
        return cast(self.graph, x, dtype, scope=self.scope)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        shape = broadcast(broadcast(shape_of(condition), shape_of(a)), shape_of(b))
        return self.emit("Select", [self.expand(v, shape) for v in (condition, a, b)], TensorType(dtype_of(a), shape))

    # -- shapes --------------------------------------------------------------------------------------------------------

    def reshape(self, x: Value, shape: Shape) -> Value:
        shape = tuple(int(d) for d in shape)
        if shape == shape_of(x):
            return x
        if math.prod(shape) != math.prod(shape_of(x)):
            raise FormatError(f"{list(shape_of(x))} cannot be reshaped to {list(shape)}")
        return self.emit("Reshape", [x, shape], shape)

    def transpose(self, x: Value, order: Shape) -> Value:
        order = tuple(int(i) for i in order)
        if order == tuple(range(len(order))):
            return x
        return self.emit("Transpose", [x, order], [shape_of(x)[i] for i in order])

    def axis_to_end(self, x: Value, axis: int) -> Value:
        """``x`` with one axis behind all others."""
        return self.transpose(x, [*(i for i in range(len(shape_of(x))) if i != axis), axis])

    def axis_from_end(self, x: Value, axis: int) -> Value:
        """``x`` with its last axis as axis number ``axis``."""
        order = list(range(len(shape_of(x)) - 1))
        order.insert(axis, len(order))
        return self.transpose(x, order)

    def expand(self, x: Value, shape: Shape) -> Value:
        shape = tuple(int(d) for d in shape)
        return x if shape == shape_of(x) else self.emit("BroadcastTo", [x, shape], shape)

    def slice(self, x: Value, begin: Shape, end: Shape, steps: Shape | None = None) -> Value:
        """``x[begin:end:steps]`` along all axes, none negative."""
        steps = (1,) * len(begin) if steps is None else tuple(int(s) for s in steps)
        begin, end = tuple(int(b) for b in begin), tuple(int(e) for e in end)
        shape = [max(0, -(-(e - b) // s)) for b, e, s in zip(begin, end, steps, strict=True)]
        if tuple(shape) == shape_of(x):
            return x
        return self.emit("StridedSlice", [x, begin, end, steps, 0, 0, 0, 0, 0], shape)

    def part(self, x: Value, axis: int, begin: int, end: int) -> Value:
        """``x[begin:end]`` along one axis."""
        shape = shape_of(x)
        begins = [begin if i == axis else 0 for i in range(len(shape))]
        return self.slice(x, begins, [end if i == axis else d for i, d in enumerate(shape)])

    def reverse(self, x: Value, *axes: int) -> Value:
        return self.emit("ReverseV2", [x, axes], shape_of(x))

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
        ends = [d + min(a, 0) for d, a in zip(shape, after, strict=True)]
        x = self.slice(x, [max(-b, 0) for b in before], ends)
        pairs = tuple((max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True))
        if not any(map(any, pairs)):
            return x
        padded = [d + b + a for d, (b, a) in zip(shape_of(x), pairs, strict=True)]
        inside = tuple(slice(b, b + d) if b or d < n else slice(None)
                       for d, (b, _), n in zip(shape_of(x), pairs, padded, strict=True))  # fmt: skip
        made = self.emit("Pad", [x], padded, {"output_names": ["y"], "paddings": pairs, "input_names": ["x"]}, CLASS)
        if value == 0:
            return made
        # MindSpore's PadV3 takes a value, but its gradient is wrong from the second run on a CPU on (2.10).
        frame = np.full([n if any(pair) else 1 for n, pair in zip(padded, pairs, strict=True)], value)
        frame[inside] = 0
        return self.add(made, self.constant(frame.astype(dtype_of(x).value)))

    def tuple_of(self, values: Sequence[Value]) -> Node:
        return self.emit("MakeTuple", values, TupleType(tuple(v.type for v in values), dynamic=False), kind=CLASS)

    def several(
        self, name: str, operands: Sequence[Value | Attribute], types: Sequence[TensorType],
        attributes: Mapping[str, Attribute] = NO_ATTRIBUTES, kind: int = FUNCTION, take: int | None = None,
    ) -> list[Value]:  # fmt: skip
        """The results of a primitive that has several; the first ``take``."""
        made = self.emit(name, operands, TupleType(tuple(types), dynamic=False), attributes, kind)
        return [self.emit("TupleGetItem", [made, i], type_, kind=CLASS) for i, type_ in enumerate(types[:take])]

    def pick(self, x: Value, indices: Value | Sequence[int] | np.ndarray, axis: int) -> Value:
        """``x`` at indices (of one axis) along an axis."""
        at = indices if isinstance(indices, Value) else self.constant(np.asarray(indices, np.int32))
        shape = list(shape_of(x))
        shape[axis] = shape_of(at)[0]
        return self.emit("Gather", [x, at, axis, 0], shape)

    # -- products and sums ---------------------------------------------------------------------------------------------

    def matmul(self, a: Value, b: Value, transpose_a: bool = False, transpose_b: bool = False) -> Value:
        """The product of two matrices, or of two stacks of equally many."""
        *stack, rows, inner = _turned(shape_of(a), transpose_a)
        *other, same, columns = _turned(shape_of(b), transpose_b)
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
        shape = shape_of(x)
        axes = tuple(sorted(axes))
        kept = [1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes]
        more: tuple[Any, ...] = (False,) if name == "ReduceSum" else ()
        return self.emit(name, [x, axes, keep, *more], kept) if axes else x


def plain(x: Value) -> TensorType:
    """The value's own type without what it aliases."""
    return TensorType(dtype_of(x), shape_of(x))


def _turned(shape: tuple[int, ...], transposed: bool) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if transposed else shape
