"""Clipping: gradients above the limit are cut down to it, those within are let through."""

from __future__ import annotations

import numpy as np

from .changes import clipped, global_norm, totals
from .context import Context, NotApplicable, moved, verdict, worst
from .promises import CLIP
from .reference import Batch, Values
from .report import VACUOUS, Result
from .tolerance import compare

FACTORS = (1.0, 8.0, 64.0, 512.0, 2.0**-3, 2.0**-6, 2.0**-10)


class Clipping:
    """The floating inputs are multiplied until the averaged gradients lie above the limit, and until they lie within
    it. Above, the update is that of gradients which are cut down in plain arithmetic and no longer than the limit;
    within, that of the gradients as they are. The tolerance is that of any update; the norm's own rounding (a sum of
    squares in float32) is part of the noise floor."""

    name = "clipping"
    promise = "gradients above the limit are cut down to it, others let through"

    def check(self, c: Context) -> Result:
        clips = c.promises.having(CLIP)
        if not clips:
            raise NotApplicable("the pipeline has no clip-gradients")
        c.needs_update()
        deviations, sides, shown = [], dict[str, float](), False
        for factor in FACTORS:
            batches = [_times(b, factor) for b in c.micro_batches(0)]
            raw = c.reference.cycle(c.reference.initial, batches, reduction=c.promises.reduction)
            if not all(np.isfinite(g).all() for g in raw.gradients.values()):
                continue
            options = clips[0].options()
            side = "above" if _above(c, raw.gradients, options["by"], float(options["limit"])) else "within"
            if side in sides:
                continue
            sides[side] = factor
            wanted = c.expected(c.reference.initial, batches)
            c.subject.restart()
            ran = c.subject.cycle(batches)
            if not ran.last.updated:
                continue
            deviations.append(compare(ran.state, wanted.expected, c.judged()))
            shown = shown or moved(wanted, c.judged())
            if len(sides) == 2:
                break
        if not deviations:
            raise NotApplicable("no cycle of this data updates")
        detail = ", ".join(f"{side} (data times {factor:g})" for side, factor in sides.items())
        if "above" not in sides:
            return Result(self.name, VACUOUS, "no gradient reached the limit: give other data", None, self.promise)
        return verdict(self.name, self.promise, worst(deviations), detail, shown=shown)


def _above(c: Context, gradients: Values, by: str, limit: float) -> bool:
    """Whether the limit bites; the clipped gradients are then checked to be within it."""
    probe = c.reference.probe
    cut = clipped(probe, gradients, by, limit)
    whole = totals(probe, cut)
    largest = (
        global_norm(list(whole.values()))
        if by == "global-norm"
        else max(float(np.abs(g).max(initial=0)) if by == "value" else global_norm([g]) for g in whole.values())
    )
    assert largest <= limit * 1.01, "the reference's own clipping"
    before = totals(probe, gradients)
    return any(not np.allclose(whole[n], before[n], rtol=1e-3, atol=0) for n in whole)


def _times(batch: Batch, factor: float) -> Batch:
    return tuple(a * a.dtype.type(factor) if a.dtype.kind == "f" else a for a in batch)
