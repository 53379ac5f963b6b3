"""Which of its results is the loss of a training graph."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...core.graph import Input, Node, State
from ...core.types import ScalarType, TensorType
from ...core.walk import carried_operands, walk
from .origins import Computed, Origin, Origins, Result

_CANDIDATES = 16
"""Results that are compared: training cells with more of them return the loss among the first."""


def find_loss(origins: Origins, results: Sequence[Result], trained: Collection[State]) -> Result | None:
    """The first forward result in a float type that depends on the most of the ``trained`` states, then of the inputs:
    a prediction does not know the labels, an accuracy does not vary with the weights.

    None where no result is forward, and where this would take an array that lacks inputs, such as predictions beside a
    loss that each branch of an ``if`` computes in another way.
    """
    candidates = [r for r in results if _is_float(r) and origins.is_forward(r.origin)][:_CANDIDATES]
    best = candidates[0] if candidates else None
    if len(candidates) > 1:
        best = max(candidates, key=lambda r: _reached(r.origin, trained))
    if best is not None and not _is_scalar(best) and _reached(best.origin, trained)[1] < len(origins.graph.inputs):
        others = (r for r in results if _is_float(r) and _is_scalar(r) and r not in candidates)
        if any(isinstance(r.origin, Node) and r.origin.op.name != "Load" for r in others):
            return None
    return best


def _is_scalar(result: Result) -> bool:
    return getattr(result.type, "shape", ()) == ()


def _is_float(result: Result) -> bool:
    return isinstance(result.type, (TensorType, ScalarType)) and result.type.dtype.is_float


def _reached(origin: Origin | None, trained: Collection[State]) -> tuple[int, int]:
    """How many of the states the value varies with, and how many inputs it takes anything from."""
    states: set[Origin] = set()
    inputs: set[Origin] = set()

    def operands(place: tuple[Origin, bool]) -> list[tuple[Origin, bool]]:
        here, varies = place
        found = here.operands if isinstance(here, Computed) else carried_operands(here)
        return [(operand, varies and _is_smooth(operand)) for operand in found]

    for here, varies in walk([] if origin is None else [(origin, True)], operands):
        if isinstance(here, State) and varies and here in trained:
            states.add(here)
        if isinstance(here, Input):
            inputs.add(here)
    return len(states), len(inputs)


def _is_smooth(value: Origin) -> bool:
    """Whether a value can vary with a weight: an integer and a truth value only jump."""
    return not (isinstance(value, Node) and isinstance(value.type, TensorType)) or value.type.dtype.is_float
