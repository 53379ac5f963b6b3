"""What situations share: the stated program as judge, the program as subject, and a window of both compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ...ir.analysis.training.dependence import dependences
from ...ir.core.errors import RuntimeFailure
from ...ir.core.program import Program
from ...ir.core.sites import site
from ...ir.rewrite.settle_gradients import settled_anatomy
from ...passes.step.names import TAG
from .changes import make_changes
from .deterministic import chances, without_dropout
from .groups import Groups, groups_of, weights_of
from .poison import poisonable
from .probe import HANDED
from .progress import Progress
from .promises import ACCUMULATION, CENTRALIZATION, CHECK, COMPUTED, LOSS_SCALE, REPLACE, Promises
from .reference import Batch, Cycle, Reference, Values
from .report import EXACT, FAILED, PASSED, VACUOUS, Deviation, Result
from .scaled import Scaling
from .stated import Stated, state
from .subject import Ran, Subject
from .tolerance import Expected, compare

WARM_UP = 4
"""After so many steps at most, weights must move."""


class NotApplicable(Exception):
    """A property says that it does not apply, and why."""


class LeftOut(Exception):
    """A property that applies takes too long for a quick verification."""


class Property(ABC):
    """A kind of situation in which programs are compared. ``check`` raises NotApplicable, with the reason, where there
    is none."""

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


@dataclass(frozen=True)
class Seen:
    """A window of the program, and of the stated one from the same state: how far they are apart in what updates write,
    and whether the stated one moves anything there."""

    ran: Ran
    wanted: Cycle
    before: Values
    off: Deviation
    moves: bool


@dataclass
class Context:
    """``original`` is the user's file, ``stated`` what passes say of its network and its optimizer, which ``reference``
    runs, and ``program`` what is judged."""

    original: Program
    stated: Stated
    program: Program
    promises: Promises
    reference: Reference
    batches: Sequence[Batch]
    cycles: int
    device: str
    seed: int
    quick: bool = False
    progress: Progress = field(default_factory=Progress)

    @property
    def base(self) -> Program:
        return self.stated.program

    @property
    def length(self) -> int:
        return self.program.micro_batches()

    def takes_long(self) -> None:
        """Properties say so once they know that they apply. LeftOut where only the others are checked."""
        if self.quick:
            raise LeftOut

    @cached_property
    def subject(self) -> Subject:
        subject = Subject(self._certain, list(self.reference.initial), self.device)
        self._settle(subject)
        if isinstance(self.reference, Scaling):
            held = subject.state()
            scales = (held[n] for n, v in self.program.state.items() if v.role == "loss-scale" and n in held)
            # Of scales for groups of layers the largest.
            scale = max((v.max() for v in scales if v.dtype.kind == "f" and v.size), default=1.0)
            self.reference.scale_by(float(scale))
        return subject

    @cached_property
    def poisoned(self) -> tuple[Subject, int]:
        """The program with gradients open to attack, and how many it has."""
        program, number = poisonable(self._certain)
        return Subject(program, list(self.reference.initial), self.device, self.subject), number

    @cached_property
    def _certain(self) -> Program:
        return without_dropout(self.program)

    def micro_batches(self, cycle: int) -> list[Batch]:
        """Different ones for each cycle, from the first again where they do not suffice."""
        n, k = self.length, len(self.batches)
        return [self.batches[(cycle * n + i) % k] for i in range(n)]

    @cached_property
    def replaced(self) -> Reference | None:
        """What passes left with the optimizer that another one replaces, cut where that is handed its gradients; None
        where it has no kernels here, for which it may be replaced."""
        *_, use = self.promises.having(REPLACE)
        for opened in (False, True):
            base = state(self.original, self.program, self.promises, leave_out=REPLACE, opened=opened).program
            try:
                reference = Reference(
                    without_dropout(base), self.device, stages=(HANDED,), unscale=str(use.options()["unscale"])
                )
                reference.micro(reference.initial, self.batches[0])
            except RuntimeFailure:
                return None
            if not reference.probe.closed:
                break
        return reference

    @cached_property
    def tagged(self) -> set[str]:
        """Weights whose gradients the program says it centralizes."""
        if self.promises.one(CENTRALIZATION) is None:
            return set()
        return {n for n, v in self.program.state.items() if TAG in v.info and len(v.shape) > 1}

    @cached_property
    def groups(self) -> Groups:
        reference = self.reference
        plain = self._expected(reference.initial, self.micro_batches(0), Groups())
        start, _ = self._moving({**plain.expected.state}, reference.probe.weights)
        gradients = reference.averaged(start, self.micro_batches(0), self.promises.reduction)
        found = groups_of(self.promises, reference, start, gradients, self.micro_batches(0)[-1])
        if found.weights and self.tagged:
            return Groups(found.weights, "gradients are centralized behind the decay")
        return found

    # -- what can be compared ------------------------------------------------------------------------------------------

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

    def needs_update(self) -> None:
        """NotApplicable where what a window's update should do cannot be computed."""
        if self.promises.unknown:
            names = ", ".join(self.promises.unknown)
            raise NotApplicable(f"{names} changes training in a way that cannot be computed here")
        self.needs_forward()
        if self.reference.probe.closed:
            raise NotApplicable(self.reference.probe.closed)

    def needs_means(self) -> None:
        """NotApplicable where a window of different micro-batches is no update by averaged gradients alone."""
        accumulation = self.promises.one(ACCUMULATION)
        if accumulation is None or self.length < 2:
            return
        if held := self.held:
            raise NotApplicable(f"the network reads '{held[0]}' as the last update left it: not computed here")
        if accumulation.options()["carry"] == ("last",):
            return
        for graph in self.base.copy().graphs.values():
            for value, dependence in dependences(settled_anatomy(graph)).items():
                raise NotApplicable(
                    f"the update of '{next(iter(dependence.states))}' takes {site(value)} besides averaged gradients: "
                    "what it takes of several micro-batches is not computed here"
                )

    @property
    def held(self) -> list[str]:
        """The states that the network reads as the last update left them, while micro-batches move what stands
        beside."""
        return [name for name in self.base.state if f"window.{name}" in self.program.state]

    # -- a window ------------------------------------------------------------------------------------------------------

    def expected(
        self,
        state: Mapping[str, np.ndarray],
        batches: Sequence[Batch],
        *,
        dropped: Sequence[int] = (),
        frozen: Collection[str] = (),
    ) -> Cycle:
        """What a window should make of ``state``. ``dropped`` micro-batches do not count."""
        return self._expected(state, batches, self.groups, dropped, frozen)

    def _expected(
        self,
        state: Mapping[str, np.ndarray],
        batches: Sequence[Batch],
        groups: Groups,
        dropped: Sequence[int] = (),
        frozen: Collection[str] = (),
    ) -> Cycle:
        still = self.stated.still.union(frozen)
        changes = groups.added(
            make_changes(self.reference.probe, self.promises, self.tagged, still), self.reference.probe
        )
        done = self.reference.cycle(state, batches, reduction=self.promises.reduction, changes=changes, dropped=dropped)
        kept = {n: state[n] for n in self.reference.trained if self.reference.serves(n) in still}
        if not kept:
            return done
        right = done.expected

        def moved() -> tuple[Values, ...]:
            return tuple({**m, **kept} for m in right.moved)

        return replace(done, expected=Expected(right.before, {**right.state, **kept}, moved))

    def compared(self, ran: Ran, wanted: Cycle) -> Deviation:
        """The worst of all that updates write, by name."""
        of = weights_of(self.reference, self.subject.names)
        groups = self.groups
        plain = [n for n, weight in of.items() if weight not in groups.weights and (weight or not groups.factors)]
        found = compare(ran.state, wanted.expected, plain)
        return worst([found, *self.groups.deviations(ran.state, wanted.expected, of)])

    def window(
        self,
        batches: Sequence[Batch],
        start: Mapping[str, np.ndarray] | None = None,
        *,
        own: Mapping[str, np.ndarray] | None = None,
        variant: int = 0,
    ) -> Seen:
        """One window of both. ``start``: the user's state before it, None where it goes on as it stands; ``own``: some
        of the program's."""
        subject, initial = self.subject, self.reference.initial
        if start is not None:
            subject.restart(variant)
            subject.load({n: v for n, v in start.items() if v is not initial[n]})
        subject.load(own or {})
        held = subject.state()
        before = self.reference.as_initial({n: v for n, v in held.items() if n in subject.names})
        variant = subject.variant
        ran = subject.cycle(batches)
        still = self.unmoved(ran, before) if variant else frozenset()
        wanted = self.expected(before, batches, frozen=still)
        moves = moved(wanted, [n for n in self.reference.probe.weights if n in subject.names])
        return Seen(ran, wanted, before, self.compared(ran, wanted), moves)

    def unmoved(self, ran: Ran, before: Mapping[str, np.ndarray]) -> frozenset[str]:
        """Weights that a window left as they were, bit for bit."""
        weights = (n for n in self.reference.probe.weights if n in ran.state)
        return frozenset(n for n in weights if ran.state[n].tobytes() == before[n].tobytes())

    @cached_property
    def training(self) -> list[Seen]:
        """As many windows of different micro-batches as were asked for, from the start."""
        self.subject.restart()
        found = []
        for number in range(self.cycles):
            self.progress.detail(f"cycle {number + 1}")
            found.append(self.window(self.micro_batches(number)))
        return found

    def moving(self, weights: Collection[str]) -> tuple[Values, list[str]]:
        """A state of the original, few steps from its first, from which a window moves the most of ``weights``; and
        these. A warm-up begins with a rate of zero, and a factor has no gradient while the other one is zero."""
        return self._moving({**self.training[0].wanted.expected.state}, weights)

    def _moving(self, after: Values, weights: Collection[str]) -> tuple[Values, list[str]]:
        state = best = self.reference.initial
        movers = differing(best, after, weights)
        for batch in self.batches[:WARM_UP]:
            if len(movers) == len(weights):
                break
            _, state = self.reference.step(state, batch)
            found = differing(state, self._expected(state, self.micro_batches(0), Groups()).expected.state, weights)
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
        held = subject.state()
        subject.keep({n: held[n] for n, v in self.program.state.items() if v.role == "loss-scale" and n in held})


def moved(cycle: Cycle, names: Collection[str]) -> bool:
    """Whether a window that is done right changes anything but counters."""
    before, after = cycle.expected.before, cycle.expected.state
    return any(before[n].dtype.kind == "f" and before[n].tobytes() != after[n].tobytes() for n in names)


def worst(deviations: Sequence[Deviation]) -> Deviation:
    return max(deviations, key=lambda d: (d.excess, d.error))


def differing(a: Values, b: Mapping[str, np.ndarray], names: Collection[str]) -> list[str]:
    """The names whose values differ in any bit, but for the sign of a zero (an update that is skipped may lose it)."""
    return [n for n in names if a[n].tobytes() != b[n].tobytes() and not _same_numbers(a[n], b[n])]


def _same_numbers(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
