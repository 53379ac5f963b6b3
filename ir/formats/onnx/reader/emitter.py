"""Makes primitives in a graph, in the form and with the types that mindspore.export gives them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....builders.cast import cast
from ....core.attributes import Attribute, TensorValue, scalar_tensor
from ....core.data import from_numpy
from ....core.errors import FormatError
from ....core.graph import Graph, Node, Value, tensor_type
from ....core.inference import broadcast
from ....core.op import NO_ATTRIBUTES, Op
from ....core.primitives import facts
from ....core.types import DType, TensorType, TupleType, Type
from ..vocabulary import dtype_of, shape_of

if TYPE_CHECKING:
    import numpy as np

CLASS, FUNCTION = 1, 2
Shape = Sequence[int]


class Emitter:
    """Appends to ``graph``. ``scope`` is where in the network the nodes stand, ``name`` a hint for their names."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.scope = ""

    def emit(
        self,
        name: str,
        operands: Sequence[Value | Attribute],
        type_: Type | Shape,
        attributes: Mapping[str, Attribute] = NO_ATTRIBUTES,
        kind: int = FUNCTION,
    ) -> Node:
        """One primitive. What is no value among the operands becomes a constant; a shape stands for a tensor of the
        first operand's element type."""
        values = [v if isinstance(v, Value) else self.graph.constant(v) for v in operands]
        if not isinstance(type_, Type):
            type_ = TensorType(tensor_type(values[0]).dtype, tuple(int(d) for d in type_))
        standing = {**facts(Op(name)).attributes, **attributes}
        return self.graph.create(Op(name, standing, kind=kind), values, type_, scope=self.scope)

    # -- constants -----------------------------------------------------------------------------------------------------

    def constant(self, array: np.ndarray) -> Value:
        """A constant tensor."""
        return self.graph.constant(TensorValue(*from_numpy(array)))

    def scalar(self, like: Value, value: float) -> Value:
        """A constant tensor without axes, of the element type of ``like``."""
        dtype = tensor_type(like).dtype
        return self.graph.constant(scalar_tensor(dtype, value if dtype.is_float else int(value)))

    # -- elementwise ---------------------------------------------------------------------------------------------------

    def unary(self, name: str, x: Value, attributes: Mapping[str, Attribute] = NO_ATTRIBUTES, kind: int = 2) -> Value:
        return self.emit(name, [x], plain(x), attributes, kind)

    def binary(
        self, name: str, a: Value, b: Value, attributes: Mapping[str, Attribute] = NO_ATTRIBUTES, kind: int = 2
    ) -> Value:
        return self.emit(name, [a, b], broadcast(shape_of(a), shape_of(b)), attributes, kind)

    def compare(self, name: str, a: Value, b: Value) -> Value:
        return self.emit(name, [a, b], TensorType(DType.BOOL, broadcast(shape_of(a), shape_of(b))))

    def add(self, a: Value, b: Value) -> Value:
        return self.binary("Add", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self.binary("Sub", a, b, {"output_names": ["output"], "input_names": ["x", "y"]})

    def mul(self, a: Value, b: Value) -> Value:
        return self.binary("Mul", a, b)

    def div(self, a: Value, b: Value) -> Value:
        return self.binary("Div", a, b)

    def log(self, x: Value) -> Value:
        return self.unary("Log", x, {"shift": 0.0, "scale": 1.0, "cust_aicpu": "Log", "base": -1.0})

    def cast(self, x: Value, dtype: DType) -> Value:
        return cast(self.graph, x, dtype, scope=self.scope)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        shape = broadcast(broadcast(shape_of(condition), shape_of(a)), shape_of(b))
        condition, a, b = (self.expand(v, shape) for v in (condition, a, b))
        return self.emit("Select", [condition, a, b], plain(a))

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

    def add_axis(self, x: Value, axis: int) -> Value:
        shape = list(shape_of(x))
        shape.insert(axis, 1)
        return self.emit("ExpandDims", [x, axis], shape)

    def drop_axis(self, x: Value, axis: int) -> Value:
        return self.emit("Squeeze", [x, (axis,)], [d for i, d in enumerate(shape_of(x)) if i != axis])

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

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        if len(values) == 1:
            return values[0]
        shape = list(shape_of(values[0]))
        for value in values[1:]:
            rest = [d for i, d in enumerate(shape_of(value)) if i != axis]
            if rest != [d for i, d in enumerate(shape) if i != axis]:
                raise FormatError(f"{list(shape_of(value))} cannot be joined to {shape} along axis {axis}")
        shape[axis] = sum(shape_of(v)[axis] for v in values)
        return self.emit("Concat", [self.tuple_of(values), axis], TensorType(dtype_of(values[0]), tuple(shape)))

    def tuple_of(self, values: Sequence[Value]) -> Node:
        return self.emit("MakeTuple", values, TupleType(tuple(v.type for v in values), dynamic=False), kind=CLASS)

    def item(self, value: Node, i: int) -> Value:
        assert isinstance(value.type, TupleType)
        return self.emit("TupleGetItem", [value, i], value.type.elements[i], kind=CLASS)

    def items(self, value: Node) -> list[Value]:
        assert isinstance(value.type, TupleType)
        return [self.item(value, i) for i in range(len(value.type.elements))]

    def gather(self, x: Value, indices: Value, axis: int) -> Value:
        """``x`` at ``indices`` (of one axis) along an axis."""
        shape = list(shape_of(x))
        shape[axis] = shape_of(indices)[0]
        return self.emit("Gather", [x, indices, axis, 0], shape)

    def pick(self, x: Value, indices: Sequence[int] | np.ndarray, axis: int) -> Value:
        """``x`` at constant indices along an axis."""
        import numpy as np

        return self.gather(x, self.constant(np.asarray(indices, np.int32)), axis)

    # -- products and sums ---------------------------------------------------------------------------------------------

    def matmul(self, a: Value, b: Value, transpose_a: bool = False, transpose_b: bool = False) -> Value:
        """The product of two matrices, or of two stacks of equally many."""
        *stack, rows, inner = _turned(shape_of(a), transpose_a)
        *other, same, columns = _turned(shape_of(b), transpose_b)
        if inner != same or stack != other:
            raise FormatError(f"{list(shape_of(a))} and {list(shape_of(b))} cannot be multiplied as matrices")
        name = "BatchMatMul" if stack else "MatMul"
        return self.emit(name, [a, b, transpose_a, transpose_b], [*stack, rows, columns])

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
