"""What is clipped is the gradient of the loss, as the optimizer is handed it.

Which value that is, the compiler finds by an analysis, and the judge cuts the original there. So both are held against
what shares none of it: the loss, which MindSpore differentiates, and the scopes of the file, which say what the cell of
the optimizer takes.
"""

from __future__ import annotations

import numpy as np

from ...passes.step.unscaling import TOLD
from .autodiff import LossGradients, NotDifferentiated
from .changes import totals
from .context import Context, NotApplicable, Property
from .derivative import noise_of
from .probe import HANDED
from .promises import CLIP, REPLACE
from .report import EXACT, FAILED, PASSED, VACUOUS, Deviation, Result
from .tolerance import SAFETY, STEP

NOISE = 0.1
"""A gradient is noise, and says nothing, where its noise floor is this part of it."""


class HandedGradients(Property):
    """For the weights whose gradients are more than noise: what is clipped, or given to another optimizer, is the
    derivative of the loss by MindSpore's autodiff; and where the file tells the optimizer's cell, that cell takes it as
    it is. The training cell may have multiplied it there. What the user says (``unscale``) is believed. Gradients that
    are none on purpose (a straight-through estimator) are no common multiple of the derivative."""

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
        unknown = f"whether {uses[-1].name} takes the gradient of the loss was not compared"
        if reference is None or reference.probe.closed:
            raise NotApplicable(f"{unknown}, since what the optimizer is handed cannot be had")
        if reference.probe.unit > 2.0**-20 or reference.probe.turns > 1:
            raise NotApplicable(f"{unknown}, since the network computes in half precision, or trains in turn")
        batch, start, probe = c.micro_batches(0)[0], reference.initial, reference.probe
        try:
            own = LossGradients(reference.base, c.device).of(start, batch)
        except NotDifferentiated as reason:
            raise NotApplicable(f"{unknown}, since {reason}") from None
        if not any(g.any() for g in own.values()):
            raise NotApplicable(f"{unknown}, since the derivative of the loss is zero: it stops gradients on purpose")
        cut = next(cut for cut in probe.cuts if cut.stage in ("clip", HANDED))
        raw = reference.micro(start, batch).gradients
        given, handed = totals(probe, raw), totals(cut, reference.handed(cut.stage, start, batch, raw))
        bound = {}
        for weight, floor in noise_of(reference, batch).items():
            rounding = SAFETY * _norm(floor) / max(_norm(given[weight]), 1e-30) + STEP * 2.0**-23
            if weight in handed and weight in own and handed[weight].any() and rounding <= NOISE:
                bound[weight] = rounding
        if not bound:
            return self.result(VACUOUS, "no gradient to speak of")
        by = {w: _times(given[w], handed[w]) for w in bound}
        multiples = {w: _times(own[w], handed[w]) for w in bound}
        spread = max(multiples.values()) - min(multiples.values())
        common = spread <= 2 * max(bound.values()) * max(map(abs, multiples.values()))
        other, worst = "", EXACT
        for weight, multiple in multiples.items():
            what = f"what {uses[-1].name} takes of '{weight}' is {multiple:.3g} times the gradient of the loss"
            error = _norm(handed[weight] - own[weight]) / _norm(handed[weight])
            found = Deviation(weight, error, error, 0.0, bound[weight], 0.0, error / bound[weight])
            if cut.taken[weight] is False:
                return self.result(FAILED, f"{what}, and the optimizer's cell is handed something else", found)
            if found.excess <= 1:
                worst = max(worst, found, key=lambda d: d.excess)
            elif cut.taken[weight] is None and uses[-1].options()["unscale"] == TOLD and (common or by[weight] != 1):
                return self.result(FAILED, f"{what}, and no cell of the file tells that the optimizer gets that", found)
            elif by[weight] == 1:
                other = what
        if other:
            raise NotApplicable(f"{other}, as the optimizer is handed it")
        return self.result(PASSED, f"{len(bound)} of {len(handed)}, by MindSpore's autodiff of the loss", worst)


def _times(one: np.ndarray, other: np.ndarray) -> float:
    """How many times one gradient another is."""
    if one.shape != other.shape or np.array_equal(one, other):
        return 1.0
    wide = one.astype(np.float64)
    return float((wide * other).sum() / max(float(np.square(wide).sum()), 1e-300))


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array.astype(np.float64)))
