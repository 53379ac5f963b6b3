"""Lion: the sign of a mean of gradients.

    c = β1 · m + (1 - β1) · g
    w = w - lr · (sign(c) + decay · w)
    m = β2 · m + (1 - β2) · g

Source: Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, algorithm 2.
"""

from __future__ import annotations

from ...ir.core.program import Program
from .composed import Composed

DEFAULTS = {"lr": 1e-4, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0}
SLOTS = ("lion_m",)


def make(made: Composed) -> Program:
    made.count()
    n, rate = made.n, made.rate()
    for weight in made.weights:
        gradient, m, w = made.gradients[weight.name], made.slot("lion_m", weight), made.weight(weight)
        direction = n.op("Sign", made.mean(m, gradient, made.number("beta1")))
        step = made.decayed(weight, w, direction, made.number("weight_decay"))
        made.store_weight(weight, n.op("Sub", w, n.op("Mul", rate, step)))
        made.store(f"lion_m.{weight.name}", made.mean(m, gradient, made.number("beta2")))
    return made.done()
