"""Integers that a primitive takes as constant operands."""

from __future__ import annotations

from ...core.attributes import Number, TensorValue
from ...core.data import to_numpy
from ...core.graph import Constant, Node
from .spans import Stuck


def integer(node: Node, i: int) -> int:
    """Operand ``i`` as an int; Stuck where it is computed."""
    value = node.operand(i).literal
    if isinstance(value, Number):
        value = value.value
    if not isinstance(value, int) or isinstance(value, bool):
        raise Stuck(f"its operand {i} is computed, and decides about axes")
    return value


def values(node: Node, i: int) -> tuple[int, ...]:
    """Operand ``i``, a tuple of ints or a tensor of them."""
    value = node.operand(i).literal
    if isinstance(value, TensorValue):
        return tuple(map(int, to_numpy(value.type, value.data).ravel()))
    return integers(node, i)


def integers(node: Node, i: int) -> tuple[int, ...]:
    """Operand ``i``, an int, a tuple of ints or none at all."""
    operand = node.operand(i)
    value = operand.value if isinstance(operand, Constant) else False
    if value is None:
        return ()
    if isinstance(value, (tuple, list)) and all(isinstance(v, int) for v in value):
        return tuple(value)
    return (integer(node, i),)
