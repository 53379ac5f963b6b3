"""Components: the tensors of floats in a value, which may be a tuple of tuples; and which values are zero."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.attributes import Number
from ...core.graph import Constant, Graph, Node, Value
from ...core.types import DType, TensorType, TupleType, Type, is_monad
from ..functions.closures import Path, unpacked
from .linear_operands import FILLS, ZEROS, linear_in

COMPLEX = (DType.COMPLEX64, DType.COMPLEX128)
Component = tuple[Value, Path]
"""A tensor: a value, or an element of the tuple that it is."""


def leaves(type_: Type) -> Iterator[Path]:
    """The places of the tensors of floats or complex numbers in a value of this type: ``()`` for a tensor itself."""
    if isinstance(type_, TupleType):
        for i, inner in enumerate(type_.elements):
            for path in leaves(inner):
                yield (i, *path)
    elif isinstance(type_, TensorType) and (type_.dtype.is_float or type_.dtype in COMPLEX):
        yield ()


def is_nothing(value: Value) -> bool:
    """An operand that adds nothing to a sum: zero, or absent."""
    if is_monad(value.type) or not isinstance(value, Constant):
        return is_monad(value.type)
    number = value.value.value if isinstance(value.value, Number) else value.value
    return number is None or (isinstance(number, (int, float)) and number == 0)


class Zeros:
    """The values that are known to be zero: constants, fills, what is linear in them."""

    def __init__(self, main: Graph):
        self._known: dict[Value, bool] = {}
        for node in main.all_nodes():
            self._known[node] = self._makes_zeros(node)

    def is_zero(self, value: Value, path: Path = ()) -> bool:
        """Whether a component is known to be zero, and so any multiple of itself."""
        value = unpacked(value, path)
        if value not in self._known:
            self._known[value] = value.is_zero or (isinstance(value, Constant) and is_nothing(value))
        return self._known[value]

    def _makes_zeros(self, node: Node) -> bool:
        name = node.op.name
        if name in ZEROS or (name in FILLS and self.is_zero(node.operand(1))):
            return True
        return any(
            all(i < node.num_operands and self.is_zero(node.operand(i)) for i in a) for a in linear_in(node) or ()
        )
