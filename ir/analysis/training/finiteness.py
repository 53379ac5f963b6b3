"""Which gradients a test for infinities and NaN sees, through what happens to them in front of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core.graph import Input, Node, Value, tensor_type
from ...core.predicates import is_float_tensor
from ...core.primitives import Family, named
from ...core.types import TupleType
from ...core.walk import walk
from ..functions.calls import picked

CARRYING = named(
    *(Family.COPY, Family.CAST, Family.RESHAPE, Family.TRANSPOSE),
    *(Family.SUM, Family.DIFFERENCE, Family.PRODUCT, Family.QUOTIENT),
) | {"Depend", "TupleGetItem", "MakeTuple", "Neg", "AllReduce"}
"""Ops whose result is not finite where an operand (of a division: the first) is not. Clipping by value is none."""
DIVISIONS = named(Family.QUOTIENT)


def gradients_behind(value: Value, gradients: Mapping[Node, str], bound: Mapping[Input, Sequence[Value]]) -> set[Node]:
    """The gradients from which ``value`` is made so that it is finite only if they are."""
    size = tensor_type(value).size

    def carried(here: Value) -> Sequence[Value]:
        if isinstance(here, Input):
            given = bound.get(here, ())
            return given if len(given) == 1 else ()
        if not isinstance(here, Node) or here in gradients or here.op.name not in CARRYING:
            return ()
        if (items := picked(here, bound)) is not None:
            return items if len(items) == 1 else ()
        return [here.operand(0)] if here.op.name == "Depend" or here.op.name in DIVISIONS else here.operands

    def of_its_size(v: Value) -> bool:
        # Of another size: a factor, which may be made of all gradients, and is none.
        return isinstance(v.type, TupleType) or (is_float_tensor(v) and tensor_type(v).size == size)

    behind = walk([value], lambda here: filter(of_its_size, carried(here)))
    return gradients.keys() & behind
