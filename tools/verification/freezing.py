"""Frozen variants: some weights keep every bit, with their slots, and the others train as if nothing were frozen."""

from __future__ import annotations

import numpy as np

from ...ir.core.wording import counted
from .context import Context, NotApplicable, Property, differing
from .promises import FREEZE
from .report import VACUOUS, Deviation, Result
from .tolerance import compare


class FrozenWeights(Property):
    """Every variant runs one cycle. Which weights it freezes is seen, not believed: those that keep every bit although
    the original would move them. Their slots keep every bit too (exact); the others are updated as by the original (the
    tolerance of any update). Variant 0 freezes none, each other one some; unless groups are given by hand, a variant
    freezes all that the one before it does."""

    name = "frozen weights"
    promise = "frozen weights and slots keep every bit, the others train as before"

    def check(self, c: Context) -> Result:
        choice = c.program.schedule.choice
        freeze = c.promises.one(FREEZE)
        if freeze is None or choice is None:
            raise NotApplicable("the program has no variants")
        c.needs_update()
        batches = c.micro_batches(0)
        before, would_move = c.moving(c.reference.probe.weights)  # what does not move seems frozen
        if not would_move:
            return self.result(VACUOUS, "nothing moved")
        by_hand = bool(freeze.options()["train"])
        deviations, seen = [], list[int]()
        previous: set[str] = set()
        for variant in range(choice.variants):
            try:
                c.subject.restart(variant)
            except LookupError:
                continue
            c.subject.load(before)
            ran = c.subject.cycle(batches)
            still = c.frozen(ran, before) & set(would_move)
            if not ran.last.updated:
                raise NotApplicable("the cycle overflows with this data")
            if bool(still) != bool(variant) or not (by_hand or previous <= still):
                what = f"variant {variant} freezes {', '.join(sorted(still)[:3]) or 'nothing'}"
                thawed = sorted(previous - still)
                what += f", but not {thawed[0]}, which an earlier one does" if thawed else ""
                return self.failed(what)
            previous = still
            slots = [n for n in c.subject.names if n not in still and c.reference.serves(n) in still]
            changed = differing(ran.state, before, slots)
            if changed:
                error = float(np.abs(ran.state[changed[0]].astype(np.float64) - before[changed[0]]).max())
                found = Deviation(changed[0], error, np.inf, np.inf, 0.0, 0.0, np.inf)
                return self.failed(f"variant {variant} writes a slot of a frozen weight", found)
            # Nor can those be judged that nothing moves (in a branch that is not taken), which may be frozen too.
            unmoved = c.frozen(ran, before) if variant else set()
            wanted = c.expected(before, batches, frozen=unmoved)
            deviations.append(compare(ran.state, wanted.expected, c.judged(unmoved)))
            seen.append(len(still))
        detail = (
            f"{counted(len(seen), 'variant')}, freezing {', '.join(map(str, seen))} of "
            f"{counted(len(would_move), 'weight')}"
        )
        return self.verdict(deviations, detail, shown=len(seen) > 1)
