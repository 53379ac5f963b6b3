"""Properties of a cycle: its update, the update of a cycle that is cut short, the losses that it reports."""

from __future__ import annotations

import numpy as np

from ...ir.analysis.training.dependence import dependences
from ...ir.core.sites import site
from ...ir.core.wording import counted
from ...ir.rewrite.settle_gradients import settled_anatomy
from .context import Context, NotApplicable, Property, moved
from .promises import ACCUMULATION, CENTRALIZATION
from .report import VACUOUS, Result
from .tolerance import deviation


class DifferentMicroBatches(Property):
    """Each of K cycles of different micro-batches changes weights, slots and hyperparameters as the original's update
    does when it is given the averaged gradients that the original computes. The user's state goes from the program to
    the reference after each cycle, so errors do not add up; what the program keeps for itself (accumulators) goes on,
    so what is not cleared shows in the second cycle."""

    name = "different micro-batches"
    promise = "a cycle updates as the original does from the average of its own gradients"

    def check(self, c: Context) -> Result:
        if reason := c.behind_updates:
            return self.result(VACUOUS, reason)
        c.needs_update()
        _needs_means(c)
        if not c.tagged and any(r.matched for r in c.program.reports if r.name == CENTRALIZATION):
            return self.failed("no weight of the program is tagged for centralization")
        deviations, shown = [], False
        for number, (found, ran, wanted) in enumerate(c.training):
            if not ran.last.updated:
                raise NotApplicable(f"cycle {number + 1} overflows with this data, so there is no update to compare")
            deviations.append(found)
            # A learning rate that starts from zero moves no weight in the first cycle.
            weights = [n for n in c.judged() if n in c.reference.probe.weights]
            shown = shown or moved(wanted, weights or c.judged())
        detail = f"{counted(c.cycles, 'cycle')} of {c.length}"
        return self.verdict(deviations, detail, shown=shown)


def _held(c: Context) -> list[str]:
    """The states that the network reads as the last update left them, while micro-batches move what stands beside."""
    return [name for name in c.base.state if f"window.{name}" in c.program.state]


def _needs_means(c: Context) -> None:
    """NotApplicable where a cycle of different micro-batches is no update by averaged gradients alone."""
    accumulation = c.promises.one(ACCUMULATION)
    if accumulation is None or c.length < 2:
        return
    if held := _held(c):
        raise NotApplicable(f"the network reads '{held[0]}' as the last update left it: not computed here")
    if accumulation.options()["carry"] == ("last",):
        return
    for graph in c.base.copy().graphs.values():
        for value, dependence in dependences(settled_anatomy(graph)).items():
            raise NotApplicable(
                f"the update of '{next(iter(dependence.states))}' takes {site(value)} besides averaged gradients: what "
                "it takes of several micro-batches is not computed here"
            )


SINGLE = 2.0**-23
"""The rounding unit of float32."""


class ShortCycle(Property):
    """A cycle that ends early takes the average over the micro-batches that it had, and leaves nothing behind for the
    next one."""

    name = "short window"
    promise = "a window that ends early averages what it has"

    def check(self, c: Context) -> Result:
        c.needs_update()
        if c.promises.one(ACCUMULATION) is None or c.length < 2:
            raise NotApplicable("a cycle is one micro-batch")
        if c.program.schedule.flush is None:
            raise NotApplicable("the program has no graph that ends a cycle early")
        _needs_means(c)
        c.takes_long()
        c.subject.restart()
        deviations, shown = [], False
        for number, count in enumerate(dict.fromkeys((c.length - 1, 1, c.length))):
            found, ran, wanted = c.run_and_judge(number, count)
            if ran.last.overflow and c.reference.probe.unit > SINGLE:  # what is scaled leaves the range of halves
                raise NotApplicable(f"a cycle of {count} overflows with this data, so there is no update to compare")
            deviations.append(found)
            shown = shown or moved(wanted, c.judged())
        lengths = f"{c.length - 1}, 1 and {c.length}" if c.length > 2 else "1 and 2"
        return self.verdict(deviations, f"cycles of {lengths}", shown=shown)


class Losses(Property):
    """The loss that a step returns is the original's, unscaled, of each micro-batch. It is the same forward part, so
    the tolerance is the rounding of one large sum: eight units in the last place."""

    name = "losses"
    promise = "each micro-batch returns the loss of the original"

    def check(self, c: Context) -> Result:
        c.needs_forward()
        _, ran, wanted = c.training[0]
        names = [n for n in wanted.micros[0].outputs if n in ran.steps[0].outputs]
        if not names:
            raise NotApplicable("the program returns nothing that the original returns")
        deviations = []
        for step, micro in list(zip(ran.steps, wanted.micros, strict=True))[: 1 if _held(c) else None]:
            for name in names[:1]:
                ours, reference = (np.asarray(x[name]) for x in (step.outputs, micro.outputs))
                ours, reference = (x.astype(np.float32) if x.dtype.kind == "f" else x for x in (ours, reference))
                noise = 8 * max(c.reference.probe.unit, 2.0**-23) * np.abs(reference)
                zero = np.zeros_like(reference)
                deviations.append(deviation(name, ours, reference, zero, [reference + noise]))
        return self.verdict(deviations, counted(c.length, "micro-batch"))
