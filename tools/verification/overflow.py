"""Poison: where a number is not finite, a program with an overflow check leaves everything as it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from ...ir.analysis.training.network import BACKWARD, FORWARD, network_parts
from ...ir.core.graph import Node, Value
from ...ir.core.op import CALL
from ...ir.core.wording import counted
from ...ir.rewrite.effects.editing import Effects
from ...passes.step.own_check import find_own_check
from .context import Context, NotApplicable, Property, differing
from .promises import CHECK, LOSS_SCALE
from .reference import Batch, Values
from .report import FAILED, PASSED, Deviation, Result
from .subject import Ran, Subject

RUNS, LARGE_RUNS, LARGE = 60, 12, 2**22
"""At most so many gradients are poisoned one by one, fewer in a network with more bytes of state than ``LARGE``; of
more, evenly spread ones."""
VALUES = (np.float32(np.inf), np.float32(np.nan), np.float32(-np.inf))
T = TypeVar("T")


class Overflow(Property):
    """Each gradient in turn (not data: that would spoil them all), each input and each weight is made infinite or NaN
    in one micro-batch of a window. Weights, slots and hyperparameters keep every bit, the step says that it did not
    update, a dynamic loss scale is divided once, and the window after it is a clean one. With ``policy=skip-micro`` the
    others of the window are averaged."""

    name = "overflow"
    promise = "a number that is not finite leaves weights, slots and step count alone"

    def check(self, c: Context) -> Result:
        check = c.promises.one(CHECK)
        if check is None:
            raise NotApplicable("the pipeline has no overflow-check")
        if check.options()["detect"] == "status":
            raise NotApplicable("detect=status asks a flag that only a saturating Ascend has")
        if c.program.schedule.search is not None:
            raise NotApplicable("the program searches its own steps")
        c.takes_long()
        number = c.poisoned[1]
        if not number:
            raise NotApplicable("no gradient leaves the backward part of the program")
        skips = c.promises.skips_micro_batches and c.length > 1
        if skips:
            c.needs_update()
        done, tried = 0, 0
        for where, at, batches, ran in _runs(c, number):
            done += 1
            tried += where.startswith("gradient")
            if found := self._wrong(c, f"{where} in micro-batch {at + 1} of {len(batches)}", at, batches, ran, skips):
                return found
        detail = f"{counted(done, 'window')}, {tried} with one of {counted(number, 'gradient')}"
        if found := self._scale(c):
            return found
        return self.passed(detail) if skips or c.promises.unknown else self._next(c, detail)

    def _wrong(
        self, c: Context, where: str, at: int, batches: list[Batch], ran: tuple[Ran, Values], skips: bool
    ) -> Result | None:
        after, before = ran
        kept = _kept(c)
        if after.last.overflow is not True:
            return self.failed(f"{where}: not reported")
        if skips:
            clean = c.expected(before, [b[: len(c.batches[0])] for b in batches], dropped=[at])
            off = c.compared(after, clean)
            return self.failed(where, off) if off.excess > 1 else None
        changed = differing(after.state, before, kept)
        if not after.last.updated and not changed:
            return None
        worst = Deviation(changed[0], np.inf, np.inf, np.inf, 0.0, 0.0, np.inf) if changed else None
        return self.failed(f"{where}: {counted(len(changed), 'state')} changed", worst)

    def _scale(self, c: Context) -> Result | None:
        """A dynamic scale is divided by its factor after a window with overflow, once, whatever the number of
        micro-batches, and not below its minimum. That it grows after clean windows takes too long to be run here."""
        scaling = c.promises.one(LOSS_SCALE)
        if scaling is None or scaling.options()["mode"] != "dynamic":
            return None
        subject, _ = c.poisoned
        subject.restart()
        options, batches = scaling.options(), c.micro_batches(0)
        first = subject.cycle(_spoiled(batches, 0, 0, np.float32(np.inf))).last.loss_scale
        second = subject.cycle(_spoiled(batches, 0, -1, np.float32(0))).last.loss_scale
        if first is None or second is None:
            return self.failed("the program does not report its loss scale")
        wanted = max(first / options["factor"], options["min"])
        if abs(second - wanted) <= 2.0**-20 * wanted:
            return None
        return self.failed(f"the loss scale {first:g} became {second:g}, not {wanted:g}")

    def _next(self, c: Context, detail: str) -> Result:
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
        found = c.compared(ran, c.training[0].wanted)
        status = FAILED if found.excess > 1 else PASSED
        detail = "the window after an overflow is off" if status == FAILED else f"{detail}, and the one after"
        return self.result(status, detail, found)


def _runs(c: Context, number: int) -> Iterator[tuple[str, int, list[Batch], tuple[Ran, Values]]]:
    """What is poisoned, in which micro-batch, these, and what came out, with the user's state before."""
    subject, initial, n = c.poisoned[0], c.reference.initial, c.length
    for i, (gradient, at, length) in enumerate(_places(c, number)):
        value = VALUES[i % len(VALUES)]
        c.progress.detail(f"gradient {gradient + 1} of {number}")
        batches = _spoiled(c.micro_batches(0)[:length], at, gradient, value)
        yield f"gradient {gradient + 1} of {number} {value}", at, batches, _ran(subject, initial, batches)
    if c.promises.skips_micro_batches and n > 1:
        return  # shown with single gradients
    clean = [(*b, np.array(-1, np.int32), np.array(0, np.float32)) for b in c.micro_batches(0)]
    names = [v.name for v in next(iter(c.base.graphs.values())).inputs]
    for i, name in enumerate(names):
        at, value = (0, n - 1)[i % 2], VALUES[i % len(VALUES)]
        if clean[at][i].dtype.kind == "f":
            spoiled = (*clean[at][:i], np.full_like(clean[at][i], value), *clean[at][i + 1 :])
            batches = [spoiled if k == at else b for k, b in enumerate(clean)]
            if not c.reference.micro(initial, spoiled[: len(names)]).finite:
                yield f"input '{name}' {value}", at, batches, _ran(subject, initial, batches)
    for i, name in enumerate(_spread(c.reference.probe.weights, LARGE_RUNS)):
        if name not in subject.names:
            continue
        value = VALUES[i % len(VALUES)]
        state = {**initial, name: np.full_like(initial[name], value)}
        if all(not c.reference.micro(state, b[: len(names)]).finite for b in clean):
            yield f"weight '{name}' {value}", 0, clean, _ran(subject, state, clean)


def _ran(subject: Subject, state: Values, batches: list[Batch]) -> tuple[Ran, Values]:
    subject.restart()
    subject.load(state)
    return subject.cycle(batches), state


def _places(c: Context, number: int) -> list[tuple[int, int, int]]:
    """Gradients, with the place of the spoiled micro-batch in a window of some length."""
    n, schedule = c.length, c.program.schedule
    chosen = _spread(range(number), LARGE_RUNS if c.base.state_bytes > LARGE else RUNS)
    # Where the same graphs run, a window is ended behind the second micro-batch: half the time.
    alike = schedule.flush is not None and [(e.graph, e.repeat) for e in schedule.cycle[1:]] == [(schedule.flush, 1)]
    short = 2 if n > 2 and alike else n
    places = [(gradient, i % short, short) for i, gradient in enumerate(chosen)]
    return places + [(chosen[0], at, n) for at in range(n) if (chosen[0], at, n) not in places]


def _spread(of: Sequence[T], most: int) -> list[T]:
    """At most so many, evenly spread."""
    runs = min(len(of), most)
    return [of[k] for k in sorted({round(i * (len(of) - 1) / max(runs - 1, 1)) for i in range(runs)})]


def _kept(c: Context) -> list[str]:
    """The states that an overflow leaves alone: not what forward writes, nor what a training cell that skips its update
    by itself writes all the same (its own loss scale)."""
    (graph,) = c.original.graphs.values()
    fx = Effects(graph)
    parts = network_parts(graph)
    effects = [e for e in fx.list if not e.passive and parts.get(e.node) not in (FORWARD, BACKWARD)]
    own = find_own_check(graph, effects)
    written = set(c.reference.probe.written)
    if own is not None:
        conditions = {condition for condition, _ in own.conditions}
        outside = [e for e in effects if not (e.node.op is CALL and _decided_by(e.node) in conditions)]
        written.update(state.name for e in outside for state in e.writes)
    return [name for name in c.subject.names if name not in written]


def _decided_by(call: Node) -> Value | None:
    switch = call.operand(0)
    return switch.operand(0) if isinstance(switch, Node) and switch.op.name == "Switch" else None


def _spoiled(batches: list[Batch], at: int, gradient: int, value: np.float32) -> list[Batch]:
    """The micro-batches with the poison in one of them; no gradient has the number -1."""
    return [
        (*b, np.array(gradient if i == at else -1, np.int32), np.array(value if i == at else 0, np.float32))
        for i, b in enumerate(batches)
    ]
