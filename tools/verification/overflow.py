"""Overflow: a gradient that is not finite, at any place of a cycle, in any one weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.analysis.training.network import BACKWARD, FORWARD, network_parts
from ...ir.core.graph import Node, Value
from ...ir.core.op import CALL
from ...ir.core.program import Entry
from ...ir.core.wording import counted
from ...ir.rewrite.effects.editing import Effects
from ...passes.step.own_check import find_own_check
from .context import Context, NotApplicable, Property, differing
from .promises import CHECK, LOSS_SCALE
from .reference import Batch
from .report import EXACT, FAILED, PASSED, Deviation, Result
from .tolerance import compare

RUNS, LARGE_RUNS, LARGE = 60, 12, 2**22
"""At most so many gradients are poisoned one by one, fewer in a network with more bytes of state than ``LARGE``; of
more, evenly spread ones."""
VALUES = (np.inf, np.nan, -np.inf)


def _checks(c: Context) -> None:
    check = c.promises.one(CHECK)
    if check is None:
        raise NotApplicable("the pipeline has no overflow-check")
    if check.options()["detect"] == "status":
        raise NotApplicable("detect=status asks a flag that only a saturating Ascend has")
    if c.program.schedule.search is not None:
        raise NotApplicable("the program searches its own steps")


def _kept(c: Context, names: Sequence[str]) -> list[str]:
    """The states that an overflow leaves alone: not what forward writes, nor what a training cell that skips its update
    by itself writes all the same (its own loss scale)."""
    (graph,) = c.base.graphs.values()
    fx = Effects(graph)
    parts = network_parts(graph)
    effects = [e for e in fx.list if not e.passive and parts.get(e.node) not in (FORWARD, BACKWARD)]
    own = find_own_check(graph, effects)
    written = set(c.reference.probe.written)
    if own is not None:
        conditions = {condition for condition, _ in own.conditions}
        outside = [e for e in effects if not (e.node.op is CALL and _decided_by(e.node) in conditions)]
        written.update(state.name for e in outside for state in e.writes)
    return [name for name in names if name not in written]


def _decided_by(call: Node) -> Value | None:
    switch = call.operand(0)
    return switch.operand(0) if isinstance(switch, Node) and switch.op.name == "Switch" else None


class Overflow(Property):
    """Each gradient in turn (not data: that would spoil them all) is made infinite or NaN in one micro-batch of a
    cycle. Weights, slots and hyperparameters keep every bit, the step says that it did not update, and the cycle after
    it is a clean one. With ``policy=skip-micro`` the others of the cycle are averaged. Exact where nothing may
    change."""

    name = "overflow"
    promise = "a gradient that is not finite leaves weights, slots and step count alone"

    def check(self, c: Context) -> Result:
        _checks(c)
        c.takes_long()
        subject, number = c.poisoned
        if not number:
            raise NotApplicable("no gradient leaves the backward part of the program")
        kept = _kept(c, subject.names)
        batches, n = c.micro_batches(0), c.length
        large = c.base.state_bytes > LARGE
        runs = min(number, LARGE_RUNS if large else RUNS)
        chosen = sorted({round(i * (number - 1) / max(runs - 1, 1)) for i in range(runs)})
        # Where the same graphs run, a cycle is ended behind the second micro-batch: half the time.
        short = 2 if n > 2 and _ends_alike(c) else n
        places = [(gradient, i % short, short) for i, gradient in enumerate(chosen)]
        places += [(chosen[0], at, n) for at in range(n) if (chosen[0], at, n) not in places]
        skips = c.promises.skips_micro_batches and n > 1
        if skips:
            c.needs_update()
        for i, (gradient, at, length) in enumerate(places):
            c.progress.detail(f"gradient {gradient + 1} of {number}")
            subject.restart()
            value = np.float32(VALUES[i % len(VALUES)])
            ran = subject.cycle(_spoiled(batches[:length], at, gradient, value))
            where = f"gradient {gradient + 1} of {number} {value} in micro-batch {at + 1} of {length}"
            if ran.last.overflow is not True:
                return self._failed(f"{where}: not reported", ran.state, c, kept)
            if skips:
                wanted = c.expected(c.reference.initial, batches[:length], dropped=[at])
                found = compare(ran.state, wanted.expected, c.judged())
                if found.excess > 1:
                    return self.failed(where, found)
            elif ran.last.updated or differing(ran.state, c.reference.initial, kept):
                return self._failed(where, ran.state, c, kept)
        detail = f"{len(chosen)} of {counted(number, 'gradient')}, {counted(len(places), 'cycle')}"
        if skips or c.promises.unknown:
            return self.passed(detail)
        return self._next_cycle(c, detail)

    def _failed(self, where: str, state: dict[str, np.ndarray], c: Context, kept: list[str]) -> Result:
        changed = differing(state, c.reference.initial, kept)
        name = changed[0] if changed else ""
        found = Deviation(name, np.inf, np.inf, np.inf, 0.0, 0.0, np.inf) if name else None
        told = changed and "not reported" not in where
        return self.failed(f"{where}: {counted(len(changed), 'state')} changed" if told else where, found)

    def _next_cycle(self, c: Context, detail: str) -> Result:
        subject, _ = c.poisoned
        try:
            c.needs_update()
        except NotApplicable:
            return self.passed(detail)
        subject.restart()
        subject.cycle(_spoiled(c.micro_batches(0), 0, 0, np.float32(np.nan)))
        subject.load(c.reference.initial)
        variant = subject.variant
        ran = subject.cycle(_spoiled(c.micro_batches(0), 0, -1, np.float32(0)))
        if variant or not ran.last.updated:
            return self.passed(detail)
        found = compare(ran.state, c.first.expected, c.judged())
        status = FAILED if found.excess > 1 else PASSED
        detail = "the cycle after an overflow is off" if status == FAILED else f"{detail}, and the one after"
        return self.result(status, detail, found)


class OverflowingData(Overflow):
    """The same with a micro-batch whose floating inputs are infinite, as it happens in practice: forward overflows,
    and with it all gradients. What forward passes write is not judged."""

    name = "overflowing data"
    promise = "a micro-batch of infinities leaves weights, slots and step count alone"

    def check(self, c: Context) -> Result:
        _checks(c)
        batches, n = c.micro_batches(0), c.length
        if not any(a.dtype.kind == "f" for a in batches[0]):
            raise NotApplicable("no input takes floating numbers")
        spoiled = tuple(np.full_like(a, np.inf) if a.dtype.kind == "f" else a for a in batches[0])
        if c.reference.micro(c.reference.initial, spoiled).finite:
            raise NotApplicable("the gradients of infinite inputs are finite here")
        if c.promises.skips_micro_batches and n > 1:
            raise NotApplicable("policy=skip-micro: shown with single gradients")
        kept = _kept(c, c.subject.names)
        for at in dict.fromkeys((0, n - 1)):
            c.subject.restart()
            ran = c.subject.cycle([spoiled if i == at else b for i, b in enumerate(batches)])
            where = f"micro-batch {at + 1} of {n}"
            if ran.last.overflow is not True:
                return self._failed(f"{where}: not reported", ran.state, c, kept)
            if ran.last.updated or differing(ran.state, c.reference.initial, kept):
                return self._failed(where, ran.state, c, kept)
        return self.passed("first and last micro-batch" if n > 1 else "")


class ScaleRule(Property):
    """A dynamic scale is divided by its factor after a cycle with overflow, once, whatever the number of micro-batches,
    and not below its minimum. Exact: the numbers are reported by the program. That it grows after a window of clean
    cycles takes too long to be run here."""

    name = "scale rule"
    promise = "an overflow divides a dynamic loss scale once"
    runs_original = False

    def check(self, c: Context) -> Result:
        scaling = c.promises.one(LOSS_SCALE)
        if scaling is None or scaling.options()["mode"] != "dynamic":
            raise NotApplicable("no dynamic loss scale")
        _checks(c)
        c.takes_long()
        subject, _ = c.poisoned
        subject.restart()
        batches, options = c.micro_batches(0), scaling.options()
        first = subject.cycle(_spoiled(batches, 0, 0, np.float32(np.inf))).last.loss_scale
        second = subject.cycle(_spoiled(batches, 0, -1, np.float32(0))).last.loss_scale
        if first is None or second is None:
            return self.failed("the program does not report its loss scale")
        wanted = max(first / options["factor"], options["min"])
        status = PASSED if abs(second - wanted) <= 2.0**-20 * wanted else FAILED
        detail = f"{first:g} became {second:g}" + ("" if status == PASSED else f", not {wanted:g}")
        return self.result(status, detail, EXACT if status == PASSED else None)


def _ends_alike(c: Context) -> bool:
    """Whether a cycle that is ended early runs the same graphs as a whole one."""
    schedule = c.program.schedule
    return schedule.flush is not None and schedule.cycle[1:] == (Entry(schedule.flush, 1),)


def _spoiled(batches: list[Batch], at: int, gradient: int, value: np.float32) -> list[Batch]:
    """The micro-batches with the poison in one of them; no gradient has the number -1."""
    return [
        (*b, np.array(gradient if i == at else -1, np.int32), np.array(value if i == at else 0, np.float32))
        for i, b in enumerate(batches)
    ]
