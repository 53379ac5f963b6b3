"""AdamW with corrected moments: the part of Muon that updates what is no matrix.

    m = β1 · m + (1 - β1) · g          v = β2 · v + (1 - β2) · g²
    w = w - lr · ((m / (1 - β1ᵗ)) / (√(v / (1 - β2ᵗ)) + ε) + decay · w)

Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.core.graph import Value
from ...ir.core.program import StateVariable
from .composed import Composed


@dataclass(frozen=True, slots=True)
class Moments:
    """The names of the slots, the betas, epsilon, and what the moments lack at each update: 1 - βᵗ."""

    first: str
    second: str
    beta1: float
    beta2: float
    epsilon: float
    lacks: tuple[Value, Value]


def moments(made: Composed, slots: Sequence[str], beta1: float, beta2: float, epsilon: float) -> Moments:
    """The moments of an optimizer; their powers of beta are states of it."""
    first, second = slots
    lacks = made.power("beta1_power", beta1), made.power("beta2_power", beta2)
    return Moments(first, second, beta1, beta2, epsilon, lacks)


def direction(made: Composed, weight: StateVariable, with_: Moments) -> Value:
    """The corrected first moment by the root of the second; both move on."""
    n, gradient = made.n, made.gradients[weight.name]
    m = made.mean(made.slot(with_.first, weight), gradient, with_.beta1)
    v = made.mean(made.slot(with_.second, weight), n.op("Square", gradient), with_.beta2)
    made.store(f"{with_.first}.{weight.name}", m)
    made.store(f"{with_.second}.{weight.name}", v)
    root = n.op("Sqrt", n.op("Div", v, with_.lacks[1]))
    return n.op("Div", n.op("Div", m, with_.lacks[0]), n.op("Add", root, n.number(with_.epsilon)))
