"""Schedule-free AdamW: a constant learning rate, and an average of the weights in the place of a schedule.

    v = β2 · v + (1 - β2) · g²          s = g / (√(v / (1 - β2ᵗ)) + ε) + decay · y
    z = z - lr · s          x = (1 - c) · x + c · z, with c = lr² / the sum of all lr² so far
    y = (1 - β1) · z + β1 · x

The weights of the network are y, at which gradients are taken. x is to be evaluated and kept: it stands in
``average.<weight>``, so ``--weights average`` takes it.

Source: Defazio et al., The Road Less Scheduled, 2024, and the weighting of the authors' implementation.
"""

from __future__ import annotations

from ...ir.core.names import average_of
from ...ir.core.program import Program
from ...ir.core.types import DType, TensorType
from .composed import Composed, widened

DEFAULTS = {"lr": 2.5e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
SLOTS = ("free_z", "free_v")


def make(made: Composed) -> Program:
    made.count()
    n, rate = made.n, made.rate()
    lacks = made.power("beta2_power", made.number("beta2"))
    squared = n.op("Square", rate)
    total = n.op("Add", made.scalar("free_rates"), squared)
    made.store("free_rates", total)
    part = n.op("Div", squared, n.op("Maximum", total, n.number(1e-30)))  # a rate of zero moves nothing
    rest = n.op("Sub", n.number(1.0), part)
    for weight in made.weights:
        gradient, y = made.gradients[weight.name], made.weight(weight)
        v = made.mean(made.slot("free_v", weight), n.op("Square", gradient), made.number("beta2"))
        root = n.op("Add", n.op("Sqrt", n.op("Div", v, lacks)), n.number(made.number("eps")))
        step = made.decayed(weight, y, n.op("Div", gradient, root), made.number("weight_decay"))
        z = n.op("Sub", made.slot("free_z", weight, widened(weight)), n.op("Mul", rate, step))
        average, type_ = average_of(weight.name), TensorType(DType.FLOAT32, weight.shape)
        made.program.add_state(average, type_, "slot", widened(weight), weight.name)
        state = made.graph.state(average, type_)
        x = n.op("Add", n.op("Mul", made.fx.load(state), rest), n.op("Mul", z, part))
        made.fx.append("Assign", [state, x])
        made.store(f"free_v.{weight.name}", v)
        made.store(f"free_z.{weight.name}", z)
        made.store_weight(weight, made.mean(x, z, made.number("beta1")))
    return made.done()
