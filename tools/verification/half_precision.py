"""The gradients of a network in half precision are those of float32 up to a bound."""

from __future__ import annotations

from ...ir.core.wording import counted
from .base import without
from .context import Context, NotApplicable, Property
from .gradient_error import Exact
from .promises import MIXED
from .report import FAILED, PASSED, VACUOUS, Deviation, Result

BOUND = 0.25
"""Without ``error``: rounding to half precision leaves up to a few hundredths on the test networks, more in deep ones
with BatchNorm over few samples. A gradient that is missing, of another weight, or cast where it overflows is off by its
whole size."""


class GradientsInHalfPrecision(Property):
    """Forward and backward of the original run in float32 and, from the same state on the same data, in half precision
    with a loss scale. Each weight's gradient is compared as a whole, by the root of the sum of squares."""

    name = "gradients in half precision"
    promise = "the gradient of each weight is that of float32, up to the bound that was asked for"

    def check(self, c: Context) -> Result:
        mixed = c.promises.one(MIXED)
        if mixed is None or mixed.options()["level"] == "O0":
            raise NotApplicable("no pass makes the network compute in half precision")
        c.needs_forward()
        bound = mixed.options()["error"] or BOUND
        exact = Exact(without(c.original, c.promises, c.program.target, MIXED), c.micro_batches(0), c.device)
        errors = exact.errors([mixed])
        if not errors:
            return self.result(VACUOUS, "no gradient to speak of")
        worst = max(errors, key=lambda w: errors[w])
        off = errors[worst]
        within = sum(error <= bound for error in errors.values())
        detail = f"{within} of {counted(len(errors), 'weight')} within {bound:.3g}"
        return self.result(
            FAILED if off > bound else PASSED, detail, Deviation(worst, off, off, 0.0, bound, 0.0, off / bound)
        )
