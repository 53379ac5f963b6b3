"""The model that is being written: nodes, initializers, names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import numpy as np

from ...core.attributes import Number, TensorValue
from ...core.data import to_numpy
from ...core.graph import Constant, Node, Value
from ...core.naming import UniqueNames
from ...core.types import DType
from ..mindir.codec import NUMBERS
from .operators import Unsupported, dtype_of, shape_of

Names = Union[str, "tuple[str | None, ...]"]
"""The ONNX name of a value; of a tuple, the names of its elements (None for one that has no counterpart)."""
_NOT_COMPUTED = (DType.STRING, DType.COMPLEX64, DType.COMPLEX128)
ELEMENT = {dtype: number for dtype, number in NUMBERS.items() if dtype not in _NOT_COMPUTED}


class Writing:
    """Grows ``nodes`` and ``initializers``."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.unique = UniqueNames()
        self.scope = ""
        self._names: dict[Value, Names] = {}

    # -- values --------------------------------------------------------------------------------------------------------

    def define(self, value: Value, names: Names) -> None:
        self._names[value] = names

    def names(self, value: Value) -> Names:
        """The names of an operand, which is there already or is a constant."""
        if value not in self._names:
            if not isinstance(value, Constant):
                raise Unsupported(f"operand %{value.name} has no value in ONNX")
            self._names[value] = self.constant(_constant_array(value), value.name or "constant")
        return self._names[value]

    def name(self, value: Value) -> str:
        """The name of an operand that is a tensor."""
        found = self.names(value)
        if not isinstance(found, str):
            raise Unsupported(f"operand %{value.name} is a tuple")
        return found

    def inputs(self, node: Node, count: int) -> list[str]:
        return [self.name(node.operand(i)) for i in range(count)]

    def rank(self, node: Node) -> int:
        return len(shape_of(node))

    def elements(self, value: Value) -> list[str]:
        """The names of a tuple of tensors."""
        names = self.names(value)
        if isinstance(names, str) or None in names:
            raise Unsupported(f"operand %{value.name} is not a tuple of tensors")
        return [name for name in names if name is not None]

    def channels(self, node: Node, i: int) -> str:
        """Operand ``i``, a number for each channel, along the second axis of operand 0."""
        more, name = len(shape_of(node.operand(0))) - 2, self.name(node.operand(i))
        return self.add("Reshape", [name, self.ints([-1, *[1] * more])]) if more > 0 else name

    def constant(self, array: np.ndarray, hint: str = "constant") -> str:
        """An initializer with these elements."""
        from onnx import numpy_helper

        name = self.unique.claim(hint)
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, values: Sequence[int]) -> str:
        return self.constant(np.array(values, np.int64), "sizes")

    def scalar(self, like: Value, value: float) -> str:
        """A number of the element type of ``like``."""
        return self.constant(np.array(value, dtype_of(like).value), "number")

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def add(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """One operator; the name of its first output."""
        return self.add_several(op, inputs, 1, **attributes)[0]

    def add_several(self, op: str, inputs: Sequence[str], count: int, **attributes: Any) -> tuple[str, ...]:
        from onnx import helper

        name = self.unique.claim(f"{self.scope}/{op}" if self.scope else op)
        outputs = [name if i == 0 else self.unique.claim(f"{name}.{i}") for i in range(count)]
        self.nodes.append(helper.make_node(op, list(inputs), outputs, name=name, **attributes))
        return tuple(outputs)


def plain(node: Node, i: int, otherwise: Any = None) -> Any:
    """A constant operand as Python has it: a number, bool or tuple of integers; ``otherwise`` where there is none."""
    if i >= node.num_operands:
        return otherwise
    value = node.operand(i)
    if not isinstance(value, Constant):
        raise Unsupported(f"its operand {i} is computed at run time")
    if isinstance(value.value, TensorValue):
        return to_numpy(value.value.type, value.value.data).tolist()
    return value.value.value if isinstance(value.value, Number) else value.value


def _constant_array(value: Constant) -> np.ndarray:
    """A constant as a tensor has it."""
    content = value.value
    if isinstance(content, TensorValue):
        return to_numpy(content.type, content.data)
    if isinstance(content, Number):
        return np.array(content.value, content.dtype.value)
    if isinstance(content, (bool, float)):
        return np.array(content, np.float32 if isinstance(content, float) else bool)
    if isinstance(content, int) or (isinstance(content, tuple) and all(isinstance(v, int) for v in content)):
        return np.array(content, np.int64)
    raise Unsupported(f"the constant %{value.name} is not a tensor")
