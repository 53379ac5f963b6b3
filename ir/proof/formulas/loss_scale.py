"""The rule of a dynamic loss scale, as terms: the prover compares a program with it.

It is written with the primitives that a program would compute it with, so that both have one normal form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.attributes import scalar_tensor
from ...core.primitives import make_op
from ...core.types import DType
from ..terms import Terms


class Writer:
    """Writes terms of float32 scalars and tensors."""

    def __init__(self, terms: Terms):
        self.terms = terms

    def number(self, value: float) -> int:
        return self.terms.constant(scalar_tensor("float32", value))

    def op(self, name: str, *arguments: int, dtype: DType = DType.FLOAT32) -> int:
        """The primitive applied; its shape is that of the arguments together."""
        shapes = [s for a in arguments if (s := self.terms.shapes[a]) is not None]
        shape = max(shapes, key=len, default=())
        head = ("op", name, self.terms.op(make_op(name)), (dtype.value, shape))
        return self.terms.make(head, arguments, shape)


def dynamic_scale(terms: Terms, scale: int, clean: int, rule: Mapping[str, Any], overflow: bool) -> tuple[int, int]:
    """A dynamic loss scale, and its count of clean cycles, after a cycle: ``nn.DynamicLossScaleUpdateCell``. An
    overflow divides the scale by the factor, ``window`` cycles in a row without one multiply it, within its bounds."""
    w = Writer(terms)
    if overflow:
        smaller = w.op("Mul", scale, w.number(1.0 / rule["factor"]))
        return w.op("Maximum", smaller, w.number(rule["min"])), w.number(0.0)
    in_a_row = w.op("Add", clean, w.number(1.0))
    grows = w.op("GreaterEqual", in_a_row, w.number(rule["window"]), dtype=DType.BOOL)
    larger = w.op("Minimum", w.op("Mul", scale, w.number(rule["factor"])), w.number(rule["max"]))
    return w.op("Select", grows, larger, scale), w.op("Select", grows, w.number(0.0), in_a_row)
