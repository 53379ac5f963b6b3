"""Clipping: gradients above the limit are cut down to it, those within are let through."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .changes import clipped, global_norm, totals
from .context import Context, NotApplicable, Property, moved
from .probe import Cut
from .promises import CLIP
from .reference import Batch, Values
from .report import VACUOUS, Result
from .tolerance import compare

DATA = {"within": (2.0**-3, 2.0**-6, 2.0**-10), "above": (8.0, 64.0, 512.0)}
WEIGHTS = {"within": (0.5, 0.25, 0.125), "above": (2.0, 4.0, 8.0, 16.0)}
"""Factors that bring gradients to either side of the limit: of floating inputs, of weights where those do not help."""
SAME = 2.0**-7
"""Where the first factor changes the gradients' size by less, no other one is tried (a BatchNorm on the data)."""


class Clipping(Property):
    """The floating inputs are multiplied until the averaged gradients lie above the limit, and until they lie within
    it; where that does not help, the weights are. Above, the update is that of gradients which are cut down in plain
    arithmetic and no longer than the limit; within, that of the gradients as they are. The tolerance is that of any
    update; the norm's own rounding (a sum of squares in float32) is part of the noise floor."""

    name = "clipping"
    promise = "gradients above the limit are cut down to it, others let through"

    def check(self, c: Context) -> Result:
        clips = c.promises.having(CLIP)
        if not clips:
            raise NotApplicable("the pipeline has no clip-gradients")
        c.needs_update()
        c.takes_long()
        options = clips[0].options()
        by, limit = options["by"], float(options["limit"])
        deviations, sides, shown = [], dict[str, str](), False
        for how, state, batches in self._attempts(c, by, sides):
            c.progress.detail(how)
            side = "above" if self._above(c, state, batches, by, limit) else "within"
            if side in sides:
                continue
            wanted = c.expected(state, batches)
            c.subject.restart()
            c.subject.load({n: v for n, v in state.items() if v is not c.reference.initial[n]})
            ran = c.subject.cycle(batches)
            if not ran.last.updated:
                continue
            sides[side] = how
            deviations.append(compare(ran.state, wanted.expected, c.judged()))
            shown = shown or moved(wanted, c.judged())
        if not deviations:
            raise NotApplicable("no cycle of this data updates")
        if "above" not in sides:
            return self.result(VACUOUS, "no gradient reached the limit: give other --data")
        detail = ", ".join(f"{side} ({how})" for side, how in sides.items())
        return self.verdict(deviations, detail, shown=shown)

    def _attempts(self, c: Context, by: str, sides: dict[str, str]) -> Iterator[tuple[str, Values, list[Batch]]]:
        """States and micro-batches, until both sides are there."""
        start, batches = c.reference.initial, c.micro_batches(0)
        yield "data as it is", start, batches
        own = _size(c, _handed(c, start, batches), by)
        for side in ("within", "above"):
            for factor in DATA[side]:
                if side in sides:
                    break
                scaled = [_times(b, factor) for b in batches]
                gradients = _handed(c, start, scaled)
                if not _finite(gradients):
                    break
                yield f"data times {factor:g}", start, scaled
                if abs(_size(c, gradients, by) - own) < SAME * own:
                    break
            for factor in WEIGHTS[side]:
                if side in sides:
                    break
                by_weight = {w: start[w] * start[w].dtype.type(factor) for w in c.reference.probe.weights}
                state = {**start, **by_weight}
                if not _finite(_handed(c, state, batches)):
                    break
                yield f"weights times {factor:g}", state, batches

    def _above(self, c: Context, state: Values, batches: list[Batch], by: str, limit: float) -> bool:
        """Whether the limit bites; the clipped gradients are then checked to be within it."""
        cut, gradients = _cut(c), _handed(c, state, batches)
        limited = clipped(cut, gradients, by, limit)
        assert _size(c, limited, by) <= limit * 1.01, "the reference's own clipping"
        before, after = totals(cut, gradients), totals(cut, limited)
        return any(not np.allclose(after[n], before[n], rtol=1e-3, atol=0) for n in after)


def _cut(c: Context) -> Cut:
    return next(cut for cut in c.reference.probe.cuts if cut.stage == "clip")


def _handed(c: Context, state: Values, batches: list[Batch]) -> Values:
    """The gradients of a cycle, as they are to be clipped."""
    averaged = c.reference.averaged(state, batches, c.promises.reduction)
    return c.reference.handed("clip", state, batches[-1], averaged)


def _size(c: Context, gradients: Values, by: str) -> float:
    """The quantity that the limit bounds."""
    whole = totals(_cut(c), gradients)
    if by == "global-norm":
        return global_norm(list(whole.values()))
    return max(float(np.abs(g).max(initial=0)) if by == "value" else global_norm([g]) for g in whole.values())


def _finite(gradients: Values) -> bool:
    return all(np.isfinite(g).all() for g in gradients.values())


def _times(batch: Batch, factor: float) -> Batch:
    return tuple(a * a.dtype.type(factor) if a.dtype.kind == "f" else a for a in batch)
