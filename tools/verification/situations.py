"""The one property of a program: from the same state on the same data it leaves and returns what the stated program
does. These are the situations in which it is looked at, since a fault may show in one of them alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from ...ir.analysis.training.own_writes import own_writes
from ...ir.core.wording import counted
from .changes import clipped, global_norm, totals
from .context import Context, NotApplicable, Property, Seen, differing
from .probe import Cut
from .promises import ACCUMULATION, CENTRALIZATION, CLIP, FREEZE, GROUPS
from .reference import Batch, Values
from .report import VACUOUS, Deviation, Result
from .tolerance import Expected, compare, result_off

SINGLE = 2.0**-23
"""The rounding unit of float32."""


class Situation(Property):
    """Windows of the program beside those of the stated one: all that updates write is compared, by name, up to the
    measured tolerance."""

    long = True

    @abstractmethod
    def applies(self, c: Context) -> None:
        """NotApplicable, with the reason, where the program is never in this situation."""

    @abstractmethod
    def windows(self, c: Context) -> Iterator[tuple[str, Seen]]:
        """Each window, and what tells it from the others."""

    def check(self, c: Context) -> Result:
        self.applies(c)
        c.needs_update()
        if self.long:
            c.takes_long()
        found, names = [], []
        for name, seen in self.windows(c):
            if seen.ran.last.updated:
                found.append(seen)
                names.append(name)
        if not found:
            raise NotApplicable("no window of this data updates")
        return self.verdict([s.off for s in found], ", ".join(names), shown=any(s.moves for s in found))


class DifferentMicroBatches(Situation):
    """Each of K windows of different micro-batches. The user's state goes from the program to the stated one after each
    window, so errors do not add up; what the program keeps for itself (accumulators) goes on, so what is not cleared
    shows in the second one."""

    name = "different micro-batches"
    promise = "a window leaves all states as the stated program does"
    long = False

    def applies(self, c: Context) -> None:
        c.needs_update()
        c.needs_means()

    def windows(self, c: Context) -> Iterator[tuple[str, Seen]]:
        for number, seen in enumerate(c.training, 1):
            if not seen.ran.last.updated:
                raise NotApplicable(f"cycle {number} overflows with this data, so there is no update to compare")
            yield f"window {number}", seen

    def check(self, c: Context) -> Result:
        if reason := c.behind_updates:
            return self.result(VACUOUS, reason)
        found = super().check(c)
        if not c.tagged and any(r.matched for r in c.program.reports if r.name == CENTRALIZATION):
            return self.failed("no weight of the program is tagged for centralization")
        groups, detail = c.groups, f"{counted(c.cycles, 'window')} of {c.length}"
        if groups.unknown:
            detail += f"; not compared: {counted(len(groups.weights), 'weight')} of groups, since {groups.unknown}"
        return self.result(found.status, detail, found.deviation)


class ShortCycle(Situation):
    """A window that ends early takes the average over the micro-batches that it had, and leaves nothing behind for the
    next one."""

    name = "short window"
    promise = "a window that ends early averages what it has"

    def applies(self, c: Context) -> None:
        c.needs_update()
        if c.promises.one(ACCUMULATION) is None or c.length < 2:
            raise NotApplicable("a window is one micro-batch")
        if c.program.schedule.flush is None:
            raise NotApplicable("the program has no graph that ends a window early")
        c.needs_means()

    def windows(self, c: Context) -> Iterator[tuple[str, Seen]]:
        c.subject.restart()
        for number, count in enumerate(dict.fromkeys((c.length - 1, 1, c.length))):
            seen = c.window(c.micro_batches(number)[:count])
            if seen.ran.last.overflow and c.reference.probe.unit > SINGLE:  # what is scaled leaves the range of halves
                raise NotApplicable(f"a window of {count} overflows with this data, so there is no update to compare")
            yield f"{count} of {c.length}", seen


class Losses(Property):
    """Each micro-batch returns the original's loss, unscaled: eight rounding units, those of one large sum. State that
    forward and backward write (BatchNorm statistics, hidden states) goes on with every micro-batch as natively, as many
    times rounded. That N micro-batches advance it N times is the known difference of accumulation."""

    name = "losses"
    promise = "each micro-batch returns the loss of the original, and leaves the state that its forward part writes"

    def check(self, c: Context) -> Result:
        c.needs_forward()
        seen, unit, deviations = c.training[0], c.reference.probe.unit, []
        pairs = list(zip(seen.ran.steps, seen.wanted.micros, strict=True))
        for step, micro in pairs[: 1 if c.held else None]:
            names = [n for n in micro.outputs if n in step.outputs][:1]
            deviations += [result_off(n, step.outputs[n], micro.outputs[n], unit) for n in names]
        written = [n for n in c.reference.probe.written if n in c.subject.names]
        for seen in c.training if written else ():
            right = seen.wanted.expected
            floats = {n: v for n, v in right.state.items() if v.dtype.kind == "f"}
            near = {n: (v * (1 + unit * 8 * c.length)).astype(v.dtype) for n, v in floats.items()}
            beside = Expected(right.before, right.state, partial(tuple, [{**right.state, **near}]))
            deviations.append(compare(seen.ran.state, beside, written))
        if not deviations:
            raise NotApplicable("the program returns nothing that the original returns")
        detail = counted(c.length, "micro-batch") + (f", {counted(len(written), 'state')}" if written else "")
        still = written and not any(differing(s.before, s.wanted.expected.state, written) for s in c.training)
        return self.verdict(deviations, detail, shown=not still)


class LossScaleLinearity(Situation):
    """The same window with the loss scales 1, the program's own, and eight times that. Powers of two change no bit;
    other scales round every product of the backward part once more, which the noise floor of the gradients covers."""

    name = "loss-scale linearity"
    promise = "the update is the same at any loss scale"

    def applies(self, c: Context) -> None:
        c.needs_update()
        if not self._own(c):
            raise NotApplicable("the program has no loss scale")

    def _own(self, c: Context) -> Values:
        c.subject.restart()
        held = {n: v for n, v in c.subject.state().items() if c.program.state[n].role == "loss-scale"}
        return {n: v for n, v in held.items() if v.dtype.kind == "f" and np.all(v > 0)}

    def windows(self, c: Context) -> Iterator[tuple[str, Seen]]:
        own = self._own(c)
        # Half precision has gradients that only a scale keeps from zero: one is no fair scale there.
        for factor in (1.0, 0.5) if c.reference.probe.unit > 2.0**-12 else (0.0, 1.0, 8.0):
            scaled = {n: (v * v.dtype.type(factor) if factor else np.ones_like(v)) for n, v in own.items()}
            seen = c.window(c.micro_batches(0), c.reference.initial, own=scaled)
            yield f"scale {float(next(iter(scaled.values())).flat[0]):g}", seen


DATA = {"within": (2.0**-3, 2.0**-6, 2.0**-10), "above": (8.0, 64.0, 512.0)}
WEIGHTS = {"within": (0.5, 0.25, 0.125), "above": (2.0, 4.0, 8.0, 16.0)}
"""Factors that bring gradients to either side of a limit: of floating inputs, of weights where those do not help."""
SAME = 2.0**-7
"""Where the first factor changes the gradients' size by less, no other one is tried (a BatchNorm on the data)."""


class Clipping(Situation):
    """The floating inputs are multiplied until the averaged gradients lie above the limit, and until they lie within
    it; where that does not help, the weights are."""

    name = "clipping"
    promise = "gradients above the limit are cut down to it, others let through"

    def applies(self, c: Context) -> None:
        if not c.promises.having(CLIP):
            raise NotApplicable("the pipeline has no clip-gradients")

    def check(self, c: Context) -> Result:
        found = super().check(c)
        if "above" not in found.detail and not found.failed:
            return self.result(VACUOUS, "no gradient reached the limit: give other --data")
        return found

    def windows(self, c: Context) -> Iterator[tuple[str, Seen]]:
        options = c.promises.having(CLIP)[0].options()
        by, limit = options["by"], float(options["limit"])
        cut, sides = next(cut for cut in c.reference.probe.cuts if cut.stage == "clip"), dict[str, str]()
        for how, state, batches in self._attempts(c, cut, by, sides):
            side = "above" if _above(cut, _handed(c, state, batches), by, limit) else "within"
            if side in sides:
                continue
            c.progress.detail(how)
            seen = c.window(batches, state)
            if seen.ran.last.updated:
                sides[side] = how
            yield f"{side} ({how})", seen

    def _attempts(
        self, c: Context, cut: Cut, by: str, sides: dict[str, str]
    ) -> Iterator[tuple[str, Values, list[Batch]]]:
        """States and micro-batches, until both sides are there."""
        start, batches = c.reference.initial, c.micro_batches(0)
        yield "data as it is", start, batches
        own = _size(cut, _handed(c, start, batches), by)
        for side, what in product(("within", "above"), ("data", "weights")):
            for factor in (DATA if what == "data" else WEIGHTS)[side]:
                if side in sides:
                    break
                state, scaled = start, batches
                if what == "weights":
                    state = {**start, **{w: start[w] * start[w].dtype.type(factor) for w in c.reference.probe.weights}}
                else:
                    scaled = [tuple(a * a.dtype.type(factor) if a.dtype.kind == "f" else a for a in b) for b in batches]
                gradients = _handed(c, state, scaled)
                if not _finite(gradients):
                    break
                yield f"{what} times {factor:g}", state, scaled
                if what == "data" and abs(_size(cut, gradients, by) - own) < SAME * own:
                    break


def _handed(c: Context, state: Values, batches: list[Batch]) -> Values:
    """The gradients of a window, as they are to be clipped."""
    averaged = c.reference.averaged(state, batches, c.promises.reduction)
    return c.reference.handed("clip", state, batches[-1], averaged)


def _size(cut: Cut, gradients: Values, by: str) -> float:
    """The quantity that the limit bounds."""
    whole = totals(cut, gradients)
    if by == "global-norm":
        return global_norm(list(whole.values()))
    return max(float(np.abs(g).max(initial=0)) if by == "value" else global_norm([g]) for g in whole.values())


def _above(cut: Cut, gradients: Values, by: str, limit: float) -> bool:
    """Whether the limit bites."""
    before, after = totals(cut, gradients), totals(cut, clipped(cut, gradients, by, limit))
    return any(not np.allclose(after[n], before[n], rtol=1e-3, atol=0) for n in after)


def _finite(gradients: Values) -> bool:
    return all(np.isfinite(g).all() for g in gradients.values())


class OtherWeights(Situation):
    """Weights, multiplied and moved a little (some are 0): what a training cell does to them by itself, behind their
    updates (a bound), shows only on what lies outside of it, and a decay or a rate only on what moves."""

    name = "other weights"
    promise = "what the training cell or a group does to weights of other sizes is done to them"

    def applies(self, c: Context) -> None:
        written = any(own_writes(graph) for graph in c.base.graphs.values()) or c.reference.probe.copies
        if not written and not (c.promises.having(GROUPS) and c.groups.weights):
            raise NotApplicable("neither the training cell nor a group does anything to weights besides their updates")

    def windows(self, c: Context) -> Iterator[tuple[str, Seen]]:
        if c.groups.weights:
            start, _ = c.moving(sorted(c.groups.weights))
            yield "weights that move", c.window(c.micro_batches(0), start)
        rng = np.random.default_rng(0)
        for factor in (4.0, 64.0):
            first = {n: c.reference.initial[n] for n in c.reference.probe.weights}
            far = {n: factor * (w + 0.01 * rng.standard_normal(w.shape)) for n, w in first.items()}
            state = {**c.reference.initial, **{n: w.astype(first[n].dtype) for n, w in far.items()}}
            if _finite(c.reference.averaged(state, c.micro_batches(0), c.promises.reduction)):
                yield f"weights times {factor:g}", c.window(c.micro_batches(0), state)


class FrozenWeights(Situation):
    """Every variant runs one window. Which weights it freezes is seen, not believed: those that keep every bit although
    the original would move them. Their slots keep every bit too; the others are as the stated program leaves them.
    Variant 0 freezes none, each other one some; unless groups are given by hand, a variant freezes all that the one
    before it does."""

    name = "frozen weights"
    promise = "frozen weights and slots keep every bit, the others train as before"
    long = False

    def applies(self, c: Context) -> None:
        if c.promises.one(FREEZE) is None or c.program.schedule.choice is None:
            raise NotApplicable("the program has no variants")

    def windows(self, c: Context) -> Iterator[tuple[str, Seen]]:
        freeze, choice = c.promises.one(FREEZE), c.program.schedule.choice
        assert freeze is not None
        assert choice is not None
        before, would_move = c.moving(c.reference.probe.weights)  # what does not move seems frozen
        previous: set[str] = set()
        for variant in range(choice.variants):
            try:
                seen = c.window(c.micro_batches(0), before, variant=variant)
            except LookupError:  # no window runs it
                continue
            still = c.unmoved(seen.ran, before) & set(would_move)
            if seen.ran.last.updated and (
                bool(still) != bool(variant) or not (freeze.options()["train"] or previous <= still)
            ):
                frozen = min(previous - still, default="") or ", ".join(sorted(still)[:3])
                off = Deviation(frozen or "no weight", np.inf, np.inf, np.inf, 0.0, 0.0, np.inf)
                yield f"variant {variant} freezes others than it is to", replace(seen, off=off)
                return
            previous = set(still)
            yield f"variant {variant} freezes {len(still)} of {counted(len(would_move), 'weight')}", seen
