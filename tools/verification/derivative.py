"""The gradients of a network that a pass has made are the derivative of its loss."""

from __future__ import annotations

import numpy as np

from .context import Context, NotApplicable, worst
from .promises import print_names
from .reference import Values
from .report import FAILED, PASSED, VACUOUS, Deviation, Result

STEPS = (2.0**-6, 2.0**-8, 2.0**-10)
TOLERANCE = 0.1
"""A central difference in float32 of a loss near one, at the best of three step lengths: rounding, curvature and the
kinks of ReLUs leave up to three hundredths of it on the test networks. A gradient that is missing, of the wrong weight
or of the wrong sign is off by its whole size."""
WEIGHTS = 16
"""At most so many weights are moved, evenly spread over the network."""


class Derivative:
    """Where a pass makes another network (less BatchNorm, a normalised head), the original cannot judge its gradients.
    So the loss itself is asked: weights are moved to and fro along random directions, one weight at a time, and the
    difference of the losses compared with what the gradient says. For losses of one number and float32."""

    name = "derivative"
    promise = "the gradients of the changed network are the derivative of its loss"

    def check(self, c: Context) -> Result:
        if not c.promises.network:
            raise NotApplicable("no pass makes another network")
        if c.reference.probe.unit > 2.0**-20:
            raise NotApplicable("differences of losses in half precision say nothing")
        probe, state, batch = c.reference.probe, c.reference.initial, c.micro_batches(0)[0]
        micro = c.reference.micro(state, batch)
        loss = next(iter(micro.outputs.values()), None)
        if not isinstance(loss, float):
            raise NotApplicable("the loss is not one number")
        rng = np.random.default_rng(c.seed)
        found: list[Deviation] = []
        gradients: Values = {}
        for slot in probe.gradients:
            for weight in slot.weights:
                g = micro.gradients[slot.name].astype(np.float64)
                gradients[weight] = gradients[weight] + g if weight in gradients else g
        largest = max(float(np.linalg.norm(g)) for g in gradients.values())
        strong = [w for w, g in gradients.items() if np.linalg.norm(g) >= 1e-2 * largest]
        strong = [w for w in strong if state[w].dtype == np.float32]
        for weight in strong[:: -(-len(strong) // WEIGHTS) or 1]:
            g = gradients[weight]
            norm = float(np.linalg.norm(g))
            # Along the gradient itself, with noise, so that a wrong element shows too.
            direction = np.sign(rng.standard_normal(g.shape)) * np.abs(g) * 0.5 + g
            direction /= np.linalg.norm(direction)
            said = float((g * direction).sum())
            scale = max(float(np.linalg.norm(state[weight])), 1.0)
            errors = []
            for step in STEPS:
                losses = []
                for sign in (1, -1):
                    there = (state[weight] + sign * step * scale * direction).astype(np.float32)
                    out = c.reference.micro({**state, weight: there}, batch).outputs
                    losses.append(float(next(iter(out.values()))))
                errors.append(abs((losses[0] - losses[1]) / (2 * step * scale) - said))
            error = min(errors)
            relative = error / max(norm, 1e-30)
            found.append(Deviation(weight, error, relative, 0.0, TOLERANCE, 0.0, relative / TOLERANCE))
        if not found:
            return Result(self.name, VACUOUS, "no gradient to speak of", None, self.promise)
        off = worst(found)
        detail = f"{len(found)} weights after {print_names(c.promises.network)}"
        return Result(self.name, FAILED if off.excess > 1 else PASSED, detail, off, self.promise)
