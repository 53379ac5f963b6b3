"""What is clipped is the gradient of the loss, as the optimizer is handed it.

Which value that is, the compiler finds by an analysis, and the judge cuts the original there. So both are held against
what shares none of it: the loss, whose differences say how long its gradient is, and the scopes of the file, which say
what the cell of the optimizer takes.
"""

from __future__ import annotations

import numpy as np

from ...passes.step.unscaling import TOLD
from .changes import totals
from .context import Context, NotApplicable, Property
from .derivative import TOLERANCE, Slope, measure
from .probe import HANDED
from .promises import CLIP, REPLACE
from .report import EXACT, FAILED, PASSED, VACUOUS, Deviation, Result


class HandedGradients(Property):
    """For the weights whose gradients are not small: what is clipped, or given to another optimizer, is the derivative
    of the loss, as differences of the loss say it, up to a tenth; and where the file tells the optimizer's cell, that
    cell takes it as it is. The training cell may have multiplied it there. What the user says (``unscale``) is
    believed. Gradients that are none on purpose (a straight-through estimator) are no common multiple of the
    derivative."""

    name = "handed gradients"
    promise = (
        "what is clipped, or given to another optimizer, is the gradient of the loss as the optimizer is handed it"
    )

    def check(self, c: Context) -> Result:
        uses = c.promises.having(CLIP) or c.promises.having(REPLACE)
        if not uses:
            raise NotApplicable("no pass clips gradients or gives them to another optimizer")
        if c.promises.having(CLIP):
            c.needs_update()
        else:
            c.needs_forward()
        reference = c.reference if c.promises.having(CLIP) else c.replaced
        unknown = f"whether {uses[-1].name} takes the gradient of the loss was not measured"
        if reference is None or reference.probe.closed:
            raise NotApplicable(f"{unknown}, since what the optimizer is handed cannot be had")
        if reference.probe.unit > 2.0**-20 or reference.probe.turns > 1:
            raise NotApplicable(f"{unknown}, since the network computes in half precision, or trains in turn")
        batch, start, probe = c.micro_batches(0)[0], reference.initial, reference.probe
        slopes = measure(reference, batch, c.seed)
        if slopes is None:
            raise NotApplicable(f"{unknown}, since the loss is not one number")
        cut = next(cut for cut in probe.cuts if cut.stage in ("clip", HANDED))
        raw = reference.micro(start, batch).gradients
        given, handed = totals(probe, raw), totals(cut, reference.handed(cut.stage, start, batch, raw))
        slopes = [s for s in slopes if s.weight in handed and handed[s.weight].any()]
        if not slopes:
            return self.result(VACUOUS, "no gradient to speak of")
        by = {s.weight: _factor(given[s.weight], handed[s.weight]) for s in slopes}
        multiples = {s.weight: _multiple(s, by[s.weight]) for s in slopes}
        times = [m for m, _ in multiples.values()]
        common = max(times) - min(times) <= 2 * TOLERANCE * abs(max(times))
        other, worst = "", EXACT
        for weight, (multiple, error) in multiples.items():
            what = f"what {uses[-1].name} takes of '{weight}' is {multiple:.3g} times the gradient of the loss"
            found = Deviation(weight, error, error, 0.0, TOLERANCE, 0.0, error / TOLERANCE)
            if cut.taken[weight] is False:
                return self.result(FAILED, f"{what}, and the optimizer's cell is handed something else", found)
            if error <= TOLERANCE:
                worst = max(worst, found, key=lambda d: d.excess)
            elif cut.taken[weight] is None and uses[-1].options()["unscale"] == TOLD and (common or by[weight] != 1):
                return self.result(FAILED, f"{what}, and no cell of the file tells that the optimizer gets that", found)
            elif by[weight] == 1:
                other = what
        if other:
            raise NotApplicable(f"{other}, as the optimizer is handed it")
        return self.result(PASSED, f"{len(slopes)} of the longest", worst)


def _factor(given: np.ndarray, handed: np.ndarray) -> float:
    """By how much the training cell multiplies a gradient."""
    if given.shape != handed.shape or np.array_equal(given, handed):
        return 1.0
    wide = given.astype(np.float64)
    return float((wide * handed).sum() / max(float(np.square(wide).sum()), 1e-300))


def _multiple(slope: Slope, by: float) -> tuple[float, float]:
    """How many times the derivative of the loss a gradient is that is multiplied by this, and how far it is from it,
    relative to its length."""
    seen = min(slope.seen, key=lambda s: abs(by * slope.said - s))
    times = by * slope.said / seen if seen else np.inf
    return times, abs(by * slope.said - seen) / max(slope.norm * abs(by), 1e-30)
