"""The view that a rule has of its operator: attributes, inputs, types of its results, and the emitter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.data import Data, to_numpy
from ...core.errors import FormatError
from ...core.graph import Value, tensor_type
from ...core.types import DType, TensorType
from ...core.wording import counted
from .emitter import Emitter
from .operators import Unsupported

if TYPE_CHECKING:
    import numpy as np


@dataclass
class Weight:
    """An initializer that becomes state where it is used as a tensor."""

    name: str
    type: TensorType
    data: Data
    value: Value | None = None
    is_statistic: bool = False

    @property
    def array(self) -> np.ndarray:
        return to_numpy(self.type, self.data)


Item = Value | Weight | Any
"""The meaning of an ONNX name: a value of the graph, a weight, or a constant (a numpy array)."""


@dataclass
class Call:
    """One node of the model. ``attributes``: those that it has, and the defaults of the others. ``types``: of its
    results, as ONNX infers them. ``use`` turns an item into a value of the graph."""

    node: Any
    attributes: dict[str, Any]
    inputs: Sequence[Item | None]
    types: Sequence[TensorType | None]
    e: Emitter
    use: Callable[[Item, bool], Value]

    def has(self, i: int) -> bool:
        return i < len(self.inputs) and self.inputs[i] is not None

    def wants(self, i: int) -> bool:
        """Whether somebody asks for output ``i`` by a name."""
        return i < len(self.node.output) and bool(self.node.output[i])

    def item(self, i: int) -> Item:
        if not self.has(i):
            raise FormatError(f"{self.node.op_type} has no input {i}")
        return self.inputs[i]

    def value(self, i: int, learned: bool = False) -> Value:
        """Input ``i`` as a value of the graph; ``learned``: even one number, if it is an initializer (elsewhere that is
        a constant). MindSpore's kernels are wrong for tensors without elements."""
        if 0 in self.shape(i):
            raise Unsupported(f"its input {i} has no elements: {list(self.shape(i))}")
        return self.use(self.item(i), learned)

    def values(self, count: int) -> list[Value]:
        return [self.value(i) for i in range(count)]

    def known(self, i: int) -> Call:
        """Itself; Unsupported where input ``i`` is computed at run time."""
        self.ints(i)
        return self

    def optional(self, i: int) -> Value | None:
        """A learned input that may be left out."""
        return self.value(i, True) if self.has(i) else None

    def is_constant(self, i: int) -> bool:
        """Whether input ``i`` is known now (weights count: their initial value is)."""
        return not isinstance(self.item(i), Value)

    def array(self, i: int) -> Any:
        """Input ``i``, which must be known now, as a numpy array."""
        item = self.item(i)
        if isinstance(item, Value):
            raise Unsupported(f"its input {i} ('{self.node.input[i]}') is computed at run time and must be constant")
        return item.array if isinstance(item, Weight) else item

    def ints(self, i: int) -> list[int]:
        """A constant input of integers; none where it is left out."""
        return [int(v) for v in self.array(i).reshape(-1)] if self.has(i) else []

    def type(self, i: int) -> TensorType:
        return type_of(self.item(i))

    def shape(self, i: int = 0) -> tuple[int, ...]:
        return self.type(i).shape

    def rank(self) -> int:
        return len(self.shape())

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of the first output."""
        if not self.types or self.types[0] is None or not self.types[0].is_static:
            raise Unsupported("the shape of its result is not known")
        return self.types[0].shape

    def attribute(self, name: str, otherwise: Any = None) -> Any:
        return self.attributes.get(name, otherwise)

    def axis(self, axis: int | None = None, rank: int | None = None) -> int:
        """An axis, counted from the front; the attribute of this name."""
        axis = self.attributes["axis"] if axis is None else axis
        rank = self.rank() if rank is None else rank
        if not -rank <= axis < rank:
            raise FormatError(f"axis {axis} of a tensor with {counted(rank, 'axis')}")
        return axis % rank

    def axes(self, i: int) -> list[int]:
        """Axes that input ``i`` names; where it names none, all."""
        return [self.axis(a) for a in self.ints(i)] or list(range(self.rank()))


def type_of(item: Item) -> TensorType:
    if isinstance(item, Value):
        return tensor_type(item)
    return item.type if isinstance(item, Weight) else TensorType(DType(item.dtype.name), tuple(item.shape))
