"""What is clipped is the gradient of the loss, as the optimizer is handed it.

Which value that is, the compiler finds by an analysis, and the judge cuts the original there. So both are held against
what shares none of it: the loss, whose differences say how long its gradient is, and the scopes of the file, which say
what the cell of the optimizer takes.
"""

from __future__ import annotations

import numpy as np

from .changes import totals
from .context import Context, NotApplicable, Property
from .derivative import TOLERANCE, Slope, measure
from .promises import CLIP
from .report import EXACT, FAILED, PASSED, VACUOUS, Deviation, Result


class HandedGradients(Property):
    """For the weights whose gradients are not small: what is clipped is the derivative of the loss, as differences of
    the loss say it, up to a tenth; and where the file tells the optimizer's cell, that cell takes it as it is. The
    training cell may have multiplied it there. What the user says (``unscale``) is believed."""

    name = "handed gradients"
    promise = "what is clipped is the gradient of the loss, as the optimizer is handed it"

    def check(self, c: Context) -> Result:
        if not c.promises.having(CLIP):
            raise NotApplicable("the pipeline has no clip-gradients")
        c.needs_update()
        unknown = "whether the gradient of the loss is clipped was not measured"
        if c.reference.probe.unit > 2.0**-20 or c.reference.probe.turns > 1:
            raise NotApplicable(f"{unknown}, since the network computes in half precision, or trains in turn")
        batch, start, probe = c.micro_batches(0)[0], c.reference.initial, c.reference.probe
        slopes = measure(c.reference, batch, c.seed)
        if slopes is None:
            raise NotApplicable(f"{unknown}, since the loss is not one number")
        (cut,) = (cut for cut in probe.cuts if cut.stage == "clip")
        raw = c.reference.micro(start, batch).gradients
        given, handed = totals(probe, raw), totals(cut, c.reference.handed("clip", start, batch, raw))
        slopes = [s for s in slopes if s.weight in handed and handed[s.weight].any()]
        if not slopes:
            return self.result(VACUOUS, "no gradient to speak of")
        scaled = ""
        worst = EXACT
        for slope in slopes:
            by = _factor(given[slope.weight], handed[slope.weight])
            times, error = _multiple(slope, by)
            what = f"what is clipped of '{slope.weight}' is {times:.3g} times the gradient of the loss"
            found = Deviation(slope.weight, error, error, 0.0, TOLERANCE, 0.0, error / TOLERANCE)
            taken = cut.taken[slope.weight]
            if taken is False:
                return self.result(FAILED, f"{what}, and the optimizer's cell is handed something else", found)
            if error <= TOLERANCE:
                worst = max(worst, found, key=lambda d: d.excess)
            elif taken is None and c.promises.unscale == "told":
                return self.result(FAILED, f"{what}, and no cell of the file tells that the optimizer gets that", found)
            elif abs(_multiple(slope, 1.0)[0] - 1) > TOLERANCE and by == 1:
                scaled = what
        if scaled:
            raise NotApplicable(f"{scaled}, as the optimizer is handed it")
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
