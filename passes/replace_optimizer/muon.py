"""Muon: the momentum of a matrix, made orthogonal.

    b = μ · b + g          u = g + μ · b (nesterov) or b
    X = u / (‖u‖ + 10⁻⁷), with at most as many rows as columns (else transposed)
    five times: A = X · Xᵀ, X = 3.4445 · X + (-4.7750 · A + 2.0315 · A · A) · X
    w = w - lr · √max(1, rows / columns) · X - lr · decay · w

Filters count as matrices of one row an output. Weights of one axis are updated by AdamW, with ``adam_lr`` in the
proportion to ``lr`` that the options give, ``adam_beta1``, ``adam_beta2`` and ``adam_eps``.

Source: Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024, with its coefficients.
"""

from __future__ import annotations

from math import prod, sqrt

from ...ir.core.graph import Value, tensor_type
from ...ir.core.program import Program
from .adamw import direction, moments
from .composed import Composed

DEFAULTS = {
    "lr": 0.02, "momentum": 0.95, "nesterov": True, "weight_decay": 0.0,
    "adam_lr": 3e-4, "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-10,
}  # fmt: skip
SLOTS = ("muon_momentum", "muon_m", "muon_v")
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


def make(made: Composed) -> Program:
    made.count()
    n, rate, decay = made.n, made.rate(), made.number("weight_decay")
    others = [w for w in made.weights if len(w.shape) < 2]
    share = made.number("adam_lr") / made.number("lr") if made.number("lr") else 0.0
    with_ = None
    if others:
        betas = made.number("adam_beta1"), made.number("adam_beta2")
        with_ = moments(made, SLOTS[1:], *betas, made.number("adam_eps"))
    for weight in made.weights:
        w = made.weight(weight)
        if len(weight.shape) < 2:
            assert with_ is not None
            step, factor = direction(made, weight, with_), share
        else:
            gradient, old = made.gradients[weight.name], made.slot(SLOTS[0], weight)
            momentum = n.op("Add", n.scaled(old, made.number("momentum")), gradient)
            made.store(f"{SLOTS[0]}.{weight.name}", momentum)
            update: Value = momentum
            if made.options["nesterov"]:
                update = n.op("Add", gradient, n.scaled(momentum, made.number("momentum")))
            rows, columns = weight.shape[0], prod(weight.shape[1:])
            matrix = _orthogonal(made, n.reshape(update, rows, columns))
            step, factor = n.reshape(matrix, *weight.shape), sqrt(max(1.0, rows / columns))
        step = made.decayed(weight, w, n.scaled(step, factor), decay * (factor if len(weight.shape) < 2 else 1.0))
        made.store_weight(weight, n.op("Sub", w, n.op("Mul", rate, step)))
    return made.done()


def _orthogonal(made: Composed, matrix: Value) -> Value:
    """The iteration of Newton and Schulz, which brings all singular values near 1."""
    n, (a, b, c) = made.n, COEFFICIENTS
    tall = tensor_type(matrix).shape[0] > tensor_type(matrix).shape[1]
    x: Value = n.op("Div", matrix, n.op("Add", made.norm(matrix), n.number(1e-7)))
    if tall:
        x = n.transpose(x, 1, 0)
    for _ in range(STEPS):
        square = n.matmul(x, x, transpose_b=True)
        factor = n.op("Add", n.scaled(square, b), n.scaled(n.matmul(square, square), c))
        x = n.op("Add", n.scaled(x, a), n.matmul(factor, x))
    return n.transpose(x, 1, 0) if tall else x
