"""The gradients of a network in half precision are those of float32 up to a bound."""

from __future__ import annotations

from math import isinf

from ...ir.core.errors import RuntimeFailure
from ...ir.core.wording import counted
from ...passes.mixed_precision.search import OTHERWISE
from .context import Context, NotApplicable, Property
from .gradient_error import Exact
from .promises import MIXED, Promises
from .report import FAILED, PASSED, VACUOUS, Deviation, Result
from .scaled import ScaledReference
from .stated import state

BOUND = 0.25
"""Without ``error``: rounding to half precision leaves up to a few hundredths on the test networks, more in deep ones
with BatchNorm over few samples. A gradient that is missing, of another weight, or cast where it overflows is off by its
whole size."""


def overflows(what: str) -> str:
    """That a result does, or a gradient, with what to do about it."""
    return (
        f"in half precision {what} overflows with this data, at a loss scale of 1 too: keep in "
        "float32 what overflows (mixed-precision{keep=GLOB}, or error=0.01,data=FILE.npz, which finds it), " + OTHERWISE
    )


def is_mixed(promises: Promises) -> bool:
    """Whether a pass makes the network compute in half precision."""
    mixed = promises.one(MIXED)
    return mixed is not None and mixed.options()["level"] != "O0"


class GradientsInHalfPrecision(Property):
    """Forward and backward of the original run in float32 and, from the same state on the same data, in half precision
    with a loss scale. Each weight's gradient is compared as a whole, by the root of the sum of squares."""

    name = "gradients in half precision"
    promise = "the gradient of each weight is that of float32, up to the bound that was asked for"

    def check(self, c: Context) -> Result:
        if not is_mixed(c.promises):
            raise NotApplicable("no pass makes the network compute in half precision")
        mixed = c.promises.having(MIXED)[-1]
        c.needs_forward()
        bound = mixed.options()["error"] or BOUND
        judge = c.reference
        assert isinstance(judge, ScaledReference)
        program = state(c.original, c.program, c.promises, leave_out=MIXED).program
        exact = Exact(program, c.micro_batches(0), c.device, judge.exact)
        last = c.promises.network[-1] is mixed
        errors = exact.errors([mixed], (judge.scaled or judge) if last else None)
        if not errors:
            return self.result(VACUOUS, "no gradient to speak of")
        worst = max(errors, key=lambda w: errors[w])
        off = errors[worst]
        if isinf(off):
            raise RuntimeFailure(overflows(f"the gradient of '{worst}'"))
        within = sum(error <= bound for error in errors.values())
        detail = f"{within} of {counted(len(errors), 'weight')} within {bound:.3g}"
        return self.result(
            FAILED if off > bound else PASSED, detail, Deviation(worst, off, off, 0.0, bound, 0.0, off / bound)
        )
