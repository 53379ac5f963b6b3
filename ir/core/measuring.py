"""How far passes move gradients. What runs a network stands far above passes, so it is handed in from there:
``boost_compile`` does it, and nothing is loaded before something is to be measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Errors = Callable[[Sequence[Any]], Mapping[str, float]]
"""For a sequence of passes, by weight: how far they move its gradient, relative to the gradient's length."""

_measure: Callable[[Any, str], Errors] | None = None


def measure_with(measure: Callable[[Any, str], Errors]) -> None:
    """From now on ``measure(program, data)`` opens the measurement of a program on a file of micro-batches."""
    global _measure
    _measure = measure


def measurement(program: object, data: str) -> Errors:
    assert _measure is not None, "boost_compile hands it in"
    return _measure(program, data)
