"""Frozen variants: some weights keep every bit, with their slots, and the others train as if nothing were frozen."""

from __future__ import annotations

import numpy as np

from .context import Context, NotApplicable, state_equal, verdict, worst
from .promises import FREEZE
from .report import FAILED, Deviation, Result
from .tolerance import compare


class FrozenWeights:
    """Every variant runs one cycle. Which weights it freezes is seen, not believed: those that keep every bit although
    the original would move them. Their slots keep every bit too (exact); the others are updated as by the original (the
    tolerance of any update); variant 0 freezes none, each other one some, and all that the one before it does."""

    name = "frozen weights"
    promise = "frozen weights and slots keep every bit, the others train as before"

    def check(self, c: Context) -> Result:
        choice = c.program.schedule.choice
        if c.promises.one(FREEZE) is None or choice is None:
            raise NotApplicable("the program has no variants")
        c.needs_update()
        before = c.reference.initial
        batches = c.micro_batches(0)
        unfrozen = c.first.expected.state
        would_move = [n for n in c.reference.probe.weights if unfrozen[n].tobytes() != before[n].tobytes()]
        deviations, seen = [], list[int]()
        previous: set[str] = set()
        for variant in range(choice.variants):
            try:
                c.subject.restart(variant)
            except LookupError:
                continue
            ran = c.subject.cycle(batches)
            still = c.frozen(ran, before) & set(would_move)
            if not ran.last.updated:
                raise NotApplicable("the cycle overflows with this data")
            if bool(still) != bool(variant) or not previous <= still:
                what = f"variant {variant} freezes {', '.join(sorted(still)[:3]) or 'nothing'}"
                thawed = sorted(previous - still)
                what += f", but not {thawed[0]}, which an earlier one does" if thawed else ""
                return Result(self.name, FAILED, what, None, self.promise)
            previous = still
            slots = [n for n in c.subject.names if n not in still and c.reference.serves(n) in still]
            changed = state_equal(ran.state, before, slots)
            if changed:
                error = float(np.abs(ran.state[changed[0]].astype(np.float64) - before[changed[0]]).max())
                found = Deviation(changed[0], error, np.inf, np.inf, 0.0, 0.0, np.inf)
                return Result(
                    self.name, FAILED, f"variant {variant} writes a slot of a frozen weight", found, self.promise
                )
            wanted = c.expected(before, batches, frozen=still)
            deviations.append(compare(ran.state, wanted.expected, c.judged(still)))
            seen.append(len(still))
        detail = f"{len(seen)} variants, freezing {', '.join(map(str, seen))} of {len(would_move)} weights"
        return verdict(self.name, self.promise, worst(deviations), detail, shown=len(seen) > 1)
