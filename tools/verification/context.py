"""The context of properties: the original as judge, the program as subject, micro-batches, and what was promised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...ir.core.errors import RuntimeFailure
from ...ir.core.program import Program
from ...passes.step.names import TAG
from .base import without
from .changes import make_changes
from .deterministic import chances, without_dropout
from .poison import poisonable
from .probe import HANDED
from .progress import Progress, Silent
from .promises import CENTRALIZATION, CHECK, COMPUTED, GROUPS, LOSS_SCALE, REPLACE, SCHEDULE, Promises, covers
from .reference import Batch, Cycle, Reference, Values
from .report import EXACT, FAILED, PASSED, VACUOUS, Deviation, Result
from .scaled import Scaling
from .schedule import rates_of, scheduled
from .subject import Ran, Subject
from .tolerance import compare

WARM_UP = 4
"""After so many steps at most, weights must move."""


class NotApplicable(Exception):
    """A property says that it does not apply, and why."""


class LeftOut(Exception):
    """A property that applies takes too long for a quick verification."""


class Property(ABC):
    """One promise of a program. ``check`` raises NotApplicable with the reason where it promises no such thing."""

    name: str
    promise: str
    runs_original = True
    """Whether what the original computes has a say."""

    @abstractmethod
    def check(self, c: Context) -> Result: ...

    def result(self, status: str, detail: str = "", deviation: Deviation | None = None) -> Result:
        return Result(self.name, status, detail, deviation, self.promise)

    def failed(self, detail: str, deviation: Deviation | None = None) -> Result:
        return self.result(FAILED, detail, deviation)

    def passed(self, detail: str = "") -> Result:
        """Exactly, to the bit."""
        return self.result(PASSED, detail, EXACT)

    def verdict(self, deviations: Sequence[Deviation], detail: str, *, shown: bool = True) -> Result:
        """Passed or failed by the worst deviation; vacuous where nothing would have shown a fault."""
        found = worst(deviations)
        if found.excess <= 1 and not shown:
            return self.result(VACUOUS, f"nothing moved: {detail}" if detail else "nothing moved", found)
        return self.result(FAILED if found.excess > 1 else PASSED, detail, found)


@dataclass
class Context:
    """``original`` is the user's file, ``base`` what passes that change the network left of it, which ``reference``
    runs, and ``program`` what is judged."""

    original: Program
    base: Program
    program: Program
    promises: Promises
    reference: Reference
    batches: Sequence[Batch]
    cycles: int
    device: str
    seed: int
    quick: bool = False
    progress: Progress = field(default_factory=Silent)

    def takes_long(self) -> None:
        """Properties say so once they know that they apply. LeftOut where only the others are checked."""
        if self.quick:
            raise LeftOut

    @cached_property
    def subject(self) -> Subject:
        subject = Subject(self._certain, list(self.reference.initial), self.device)
        self._settle(subject)
        if isinstance(self.reference, Scaling):
            self.reference.scale_by(self._scale(subject))
        return subject

    def _scale(self, subject: Subject) -> float:
        """By how much the program multiplies its loss; of scales for groups of layers the largest."""
        state = subject.state()
        scales = (state[n] for n, v in self.program.state.items() if v.role == "loss-scale" and n in state)
        return float(max((v.max() for v in scales if v.dtype.kind == "f" and v.size), default=1.0))

    @cached_property
    def poisoned(self) -> tuple[Subject, int]:
        """The program with gradients open to attack, and how many it has."""
        program, number = poisonable(self._certain)
        return Subject(program, list(self.reference.initial), self.device, self.subject), number

    @cached_property
    def _certain(self) -> Program:
        return without_dropout(self.program)

    @property
    def length(self) -> int:
        return self.program.micro_batches()

    def micro_batches(self, cycle: int) -> list[Batch]:
        """Different ones for each cycle, from the first again where they do not suffice."""
        n, k = self.length, len(self.batches)
        return [self.batches[(cycle * n + i) % k] for i in range(n)]

    @cached_property
    def replaced(self) -> Reference | None:
        """What passes left with the optimizer that another one replaces, cut where that is handed its gradients; None
        where it has no kernels here, for which it may be replaced."""
        *_, use = self.promises.having(REPLACE)
        base = without_dropout(without(self.original, self.promises, self.program.target, REPLACE))
        try:
            reference = Reference(base, self.device, stages=(HANDED,), unscale=str(use.options()["unscale"]))
            reference.micro(reference.initial, self.batches[0])
        except RuntimeFailure:
            return None
        return reference

    @cached_property
    def tagged(self) -> set[str]:
        """Weights whose gradients the program says it centralizes."""
        if self.promises.one(CENTRALIZATION) is None:
            return set()
        return {n for n, v in self.program.state.items() if TAG in v.info and len(v.shape) > 1}

    @cached_property
    def grouped(self) -> set[str]:
        """Weights whose update parameter-groups changes: a property of their own judges them."""
        found: set[str] = set()
        for group in self.promises.having(GROUPS):
            if group.options()["lr_factor"] is not None or group.options()["weight_decay"] is not None:
                weights = self.reference.probe.weights
                found.update(n for n in weights if covers(group, n, len(self.base.state[n].shape)))
        return found

    def needs_forward(self) -> None:
        """NotApplicable where forward and backward of the program cannot be compared with the original's."""
        if self.program.schedule.search is not None:
            raise NotApplicable("the program searches its own steps")
        random = chances(self.base)
        if random:
            raise NotApplicable(f"the original draws random numbers that cannot be switched off here ({random[0]})")
        if reason := self.behind_updates:
            raise NotApplicable(reason)

    @cached_property
    def behind_updates(self) -> str:
        """Why the original has no such gradients as the program; "" where it has."""
        changing = next((p.name for p in self.promises.passes if p.name in COMPUTED), None)
        if changing is None or self.reference.probe.turns == 1:
            return ""
        return f"the cell takes gradients behind updates of the same step, which {changing} changes"

    def needs_update(self, *, stages: bool = True) -> None:
        """NotApplicable where what a cycle's update should do cannot be computed. ``stages``: nor where the gradients
        that passes change cannot be had."""
        if self.promises.unknown:
            raise NotApplicable(
                f"{', '.join(self.promises.unknown)} changes training in a way that cannot be computed here"
            )
        self.needs_forward()
        if self.promises.having(SCHEDULE) and not rates_of(self.base):
            raise NotApplicable("the original holds its learning rate in no state, in which another could be set")
        if stages and self.reference.probe.closed:
            raise NotApplicable(self.reference.probe.closed)

    def expected(
        self,
        state: Mapping[str, np.ndarray],
        batches: Sequence[Batch],
        *,
        dropped: Sequence[int] = (),
        frozen: Collection[str] = (),
    ) -> Cycle:
        """The state that a cycle should make of ``state``."""
        changes = make_changes(self.reference.probe, self.promises, self.tagged, frozen)
        state = self.scheduled(state)
        return self.reference.cycle(state, batches, reduction=self.promises.reduction, changes=changes, dropped=dropped)

    def scheduled(self, state: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """The state that the original updates from, with the learning rates that a schedule gives it."""
        schedule = self.promises.one(SCHEDULE)
        return state if schedule is None else scheduled(schedule, self.base, state)

    def judged(self, names: Collection[str] = ()) -> list[str]:
        """The state that a cycle's update is judged by: what the original's update side writes, but for weights (with
        their slots and copies) that have a property of their own."""
        present = set(self.subject.names)
        out = self.grouped | set(names)
        of = {n: self.reference.probe.copies.get(n, self.reference.serves(n)) for n in self.reference.trained}
        return [n for n, weight in of.items() if n in present and weight not in out]

    def frozen(self, ran: Ran, before: Mapping[str, np.ndarray]) -> set[str]:
        """Weights that a cycle left as they were, bit for bit."""
        return {
            n for n in self.reference.probe.weights if n in ran.state and ran.state[n].tobytes() == before[n].tobytes()
        }

    def run_and_judge(self, cycle: int, count: int | None = None) -> tuple[Deviation, Ran, Cycle]:
        """One cycle of the program from its user's state as it stands, against what it should be."""
        subject = self.subject
        before = self.reference.as_initial({n: v for n, v in subject.state().items() if n in subject.names})
        batches = self.micro_batches(cycle)[:count]
        variant = subject.variant
        self.progress.detail(f"cycle {cycle + 1}")
        ran = subject.cycle(batches)
        still = self.frozen(ran, before) if variant else set()
        wanted = self.expected(before, batches, frozen=still)
        return compare(ran.state, wanted.expected, self.judged(still)), ran, wanted

    @cached_property
    def training(self) -> list[tuple[Deviation, Ran, Cycle]]:
        """As many cycles of different micro-batches as were asked for, from the start."""
        self.subject.restart()
        return [self.run_and_judge(number) for number in range(self.cycles)]

    @property
    def first(self) -> Cycle:
        """The expected outcome of the first of them."""
        return self.training[0][2]

    def moving(self, weights: Collection[str]) -> tuple[Values, list[str]]:
        """A state of the original, few steps from its first, from which a cycle moves the most of ``weights``; and
        these. A warm-up begins with a rate of zero, and a factor has no gradient while the other one is zero."""
        state = best = self.reference.initial
        movers = differing(best, self.first.expected.state, weights)
        for batch in self.batches[:WARM_UP]:
            if len(movers) == len(weights):
                break
            _, state = self.reference.step(state, batch)
            found = differing(state, self.expected(state, self.micro_batches(0)).expected.state, weights)
            if len(found) > len(movers):
                best, movers = state, found
        return best, movers

    def _settle(self, subject: Subject) -> None:
        """A dynamic loss scale that is too large for half precision shrinks first, as it would in training."""
        scaling = self.promises.one(LOSS_SCALE)
        if scaling is None or self.promises.one(CHECK) is None or self.reference.probe.unit < 2.0**-12:
            return
        batches = self.micro_batches(0)
        for _ in range(40):
            ran = subject.cycle(batches)
            if ran.last.updated:
                break
        state = subject.state()
        own = {n: state[n] for n, v in self.program.state.items() if v.role == "loss-scale" and n in state}
        subject.keep(own)


def moved(cycle: Cycle, names: Collection[str]) -> bool:
    """Whether a cycle that is done right changes anything but counters."""
    before, after = cycle.expected.before, cycle.expected.state
    return any(before[n].dtype.kind == "f" and before[n].tobytes() != after[n].tobytes() for n in names)


def worst(deviations: Sequence[Deviation]) -> Deviation:
    return max(deviations, key=lambda d: (d.excess, d.error))


def differing(a: Values, b: Mapping[str, np.ndarray], names: Collection[str]) -> list[str]:
    """The names whose values differ in any bit, but for the sign of a zero (an update that is skipped may lose it)."""
    return [n for n in names if a[n].tobytes() != b[n].tobytes() and not _same_numbers(a[n], b[n])]


def _same_numbers(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
