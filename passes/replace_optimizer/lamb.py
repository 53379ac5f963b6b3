"""Lamb: AdamW's step, each layer's made as long as its weight. MindSpore has it for accelerators; this form runs on
CPU too.

    r = (m / (1 - β1ᵗ)) / (√(v / (1 - β2ᵗ)) + ε) + decay · w
    w = w - lr · (‖w‖ / ‖r‖) · r          (the ratio is 1 where a norm is 0)

Source: You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, 2020, algorithm 2, with φ
the identity.
"""

from __future__ import annotations

from ...ir.core.program import Program
from .adamw import direction, moments
from .composed import Composed

DEFAULTS = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-6, "weight_decay": 0.0}
SLOTS = ("lamb_m", "lamb_v")


def make(made: Composed) -> Program:
    made.count()
    n, rate = made.n, made.rate()
    with_ = moments(made, SLOTS, made.number("beta1"), made.number("beta2"), made.number("eps"))
    zero, one = n.number(0.0), n.number(1.0)
    for weight in made.weights:
        w = made.weight(weight)
        step = made.decayed(weight, w, direction(made, weight, with_), made.number("weight_decay"))
        long, short = made.norm(w), made.norm(step)
        both = n.op("LogicalAnd", n.op("Greater", long, zero), n.op("Greater", short, zero))
        ratio = n.op("Select", both, n.op("Div", long, n.op("Select", both, short, one)), one)
        made.store_weight(weight, n.op("Sub", w, n.op("Mul", n.op("Mul", rate, ratio), step)))
    return made.done()
