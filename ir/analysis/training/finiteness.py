"""Which gradients a test for infinities and NaN sees, through what happens to them in front of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core.graph import Input, Node, Value, tensor_type
from ...core.primitives import Family, named
from ...core.types import TensorType, TupleType
from ..functions.calls import picked

CARRYING = named(
    *(Family.COPY, Family.CAST, Family.RESHAPE, Family.TRANSPOSE),
    *(Family.SUM, Family.DIFFERENCE, Family.PRODUCT, Family.QUOTIENT),
) | {"Depend", "TupleGetItem", "MakeTuple", "Neg", "AllReduce"}
"""Ops whose result is not finite where an operand (of a division: the first) is not. Clipping by value is none."""
DIVISIONS = named(Family.QUOTIENT)


def gradients_behind(value: Value, gradients: Mapping[Node, str], bound: Mapping[Input, Sequence[Value]]) -> set[Node]:
    """The gradients from which ``value`` is made so that it is finite only if they are."""
    found: set[Node] = set()
    size = tensor_type(value).size
    stack: list[Value] = [value]
    seen: set[Value] = {value}
    while stack:
        here = stack.pop()
        following: Sequence[Value] = ()
        if isinstance(here, Input):
            following = bound.get(here, ())
            following = following if len(following) == 1 else ()
        elif isinstance(here, Node) and here in gradients:
            found.add(here)
        elif isinstance(here, Node) and here.op.name in CARRYING:
            items = picked(here, bound)
            if items is not None:
                following = items if len(items) == 1 else ()
            elif here.op.name == "Depend" or here.op.name in DIVISIONS:
                following = [here.operand(0)]
            else:
                following = here.operands
        for v in following:
            # Of another size: a factor, which may be made of all gradients, and is none.
            if v not in seen and (isinstance(v.type, TupleType) or (is_float(v) and tensor_type(v).size == size)):
                seen.add(v)
                stack.append(v)
    return found


def is_float(value: Value) -> bool:
    """Whether it is a tensor of a float type."""
    return isinstance(value.type, TensorType) and value.type.dtype.is_float
