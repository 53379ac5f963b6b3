"""The view that a rule has of its operator: attributes, inputs, and the emitter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....core.data import Data, to_numpy
from ....core.errors import FormatError
from ....core.graph import Value, tensor_type
from ....core.types import DType, TensorType
from ....core.wording import counted
from ..vocabulary import Unsupported
from .emitter import Emitter

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
Rule = Callable[["Call"], Any]
"""Returns the operator's outputs: one, or a sequence; values, or numpy arrays for what is constant."""


class Call:
    """One node of the model. ``use`` turns an item into a value of the graph."""

    def __init__(
        self, node: Any, attributes: dict[str, Any], inputs: Sequence[Item | None], opset: int, emitter: Emitter,
        use: Callable[[Item, bool], Value],
    ) -> None:  # fmt: skip
        self.op_type: str = node.op_type
        self.attributes = attributes
        self.inputs = inputs
        self.input_names = list(node.input)
        self.wanted = [bool(name) for name in node.output]
        """Which outputs somebody asks for by a name."""
        self.opset = opset
        self.emitter = emitter
        self._use = use

    def has(self, i: int) -> bool:
        return i < len(self.inputs) and self.inputs[i] is not None

    def wants(self, i: int) -> bool:
        return i < len(self.wanted) and self.wanted[i]

    def item(self, i: int) -> Item:
        if not self.has(i):
            raise FormatError(f"{self.op_type} has no input {i}")
        return self.inputs[i]

    def value(self, i: int) -> Value:
        """Input ``i`` as a value of the graph. MindSpore's kernels are wrong for tensors without elements."""
        if 0 in self.shape(i):
            raise Unsupported(f"its input {i} has no elements: {list(self.shape(i))}")
        return self._use(self.item(i), False)

    def parameter(self, i: int) -> Value:
        """Input ``i`` as a value that is learned if it is an initializer, even one number (elsewhere a constant)."""
        return self._use(self.item(i), True)

    def values(self) -> list[Value]:
        return [self.value(i) for i in range(len(self.inputs))]

    def is_constant(self, i: int) -> bool:
        """Whether input ``i`` is known now (weights count: their initial value is)."""
        return not isinstance(self.item(i), Value)

    def array(self, i: int) -> Any:
        """Input ``i``, which must be known now, as a numpy array."""
        item = self.item(i)
        if isinstance(item, Value):
            raise Unsupported(f"its input {i} ('{self.input_names[i]}') is computed at run time and must be constant")
        return item.array if isinstance(item, Weight) else item

    def ints(self, i: int) -> list[int]:
        """A constant input of integers."""
        return [int(v) for v in self.array(i).reshape(-1)]

    def type(self, i: int) -> TensorType:
        item = self.item(i)
        if isinstance(item, Value):
            return tensor_type(item)
        if isinstance(item, Weight):
            return item.type
        return TensorType(DType(item.dtype.name), tuple(item.shape))

    def shape(self, i: int) -> tuple[int, ...]:
        return self.type(i).shape

    def rank(self, i: int = 0) -> int:
        return len(self.shape(i))

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def axis(self, axis: int, rank: int | None = None) -> int:
        """The axis counted from the front."""
        rank = self.rank() if rank is None else rank
        if not -rank <= axis < rank:
            raise FormatError(f"axis {axis} of a tensor with {counted(rank, 'axis')}")
        return axis % rank

    def axes(self, i: int) -> list[int] | None:
        """Axes, given as input ``i`` (newer opsets) or as an attribute (older ones); None where not given."""
        given = self.ints(i) if self.has(i) else self.attribute("axes")
        return None if given is None else [self.axis(a) for a in given]
