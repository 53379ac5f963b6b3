"""Training with the original: the judge of a verification. Gradients and updates are the original's own, run in
MindSpore; what stands between them (averages, clipping) is plain arithmetic here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ...ir.analysis.batch.joins import Beside
from ...ir.core.program import Program
from ...passes.step.unscaling import TOLD
from ...runtime.training.result import StepResult
from ...runtime.training.session import Session
from .probe import RAW, WEIGHT, Cut, Probe, Slot, make_probe
from .recent import Recent
from .tolerance import Expected, equal, floors, signs

Batch = tuple[np.ndarray, ...]
Values = dict[str, np.ndarray]


class Change(Protocol):
    """A change of the gradients of a cycle (by gradient), given the state: clipping, centralization. ``noise``: by what
    the given gradients are off; the signs, those of zeros too, say where each element goes by what the changes round,
    up or down."""

    def __call__(self, given: Values, state: Values, noise: Values | None = None, /) -> Values: ...


Changes = dict[str, Change]
"""By the stage at which each happens."""


@dataclass(frozen=True)
class Micro:
    """One micro-batch: the original's outputs, its gradients, what forward and backward wrote, what it weighs."""

    outputs: dict[str, Any]
    gradients: Values
    written: Values
    weight: float

    @property
    def finite(self) -> bool:
        return all(np.isfinite(g).all() for g in self.gradients.values())


@dataclass(frozen=True)
class Cycle:
    """The expected outcome of a cycle. ``gradients`` are the averaged ones, before any pass changes them."""

    micros: tuple[Micro, ...]
    gradients: Values
    expected: Expected


class Reference:
    """The original (or what passes that make another network of it left of it) in MindSpore. Serves any number of
    programs made from it."""

    def __init__(
        self,
        base: Program,
        device: str = "CPU",
        weight: tuple[str, Beside] | None = None,
        stages: Sequence[str] = (),
        unscale: str = TOLD,
    ):
        """``stages``: at which gradients can be changed; ``unscale``: what the user says of them there."""
        self.base = base
        self.probe: Probe = make_probe(base, weight and weight[0], stages, unscale)
        self._beside = weight and weight[1]
        self._device = device
        self._probe = Session(self.probe.program, device=device)
        self.initial: Values = self._probe.state()
        self._micros: Recent[Micro] = Recent(lambda m: sum(a.nbytes for a in m.gradients.values()))
        self._near: Recent[list[Values]] = Recent(lambda found: sum(a.nbytes for v in found for a in v.values()))
        self._slots = (*self.probe.gradients, *(s for cut in self.probe.cuts for s in cut.gradients))
        self._nothing = {s.name: np.zeros(s.type.shape, s.type.dtype.value) for s in self._slots}
        self.roles = {name: variable.role for name, variable in base.state.items()}

    @cached_property
    def _original(self) -> Session:
        return Session(self.base, device=self._device)

    def as_initial(self, state: Values) -> Values:
        """The state, with the initial arrays in the place of equal ones (what is computed from these is remembered),
        and of those that it lacks."""
        return {n: state[n] if n in state and not equal(state[n], v) else v for n, v in self.initial.items()}

    @property
    def trained(self) -> list[str]:
        """State that training changes through the update side: weights, slots, hyperparameters."""
        return [n for n in self.initial if n not in self.probe.written]

    def serves(self, name: str) -> str:
        """The weight that a state is, or is a slot of; "" for state of the whole optimizer."""
        return name if name in self.probe.weights else self.probe.served.get(name, "")

    def step(self, state: Mapping[str, np.ndarray], batch: Batch) -> tuple[StepResult, Values]:
        """One step of the untouched original."""
        self._original.load_state(state)
        result = self._original.step(*batch)
        return result, self._original.state()

    def micro(self, state: Mapping[str, np.ndarray], batch: Batch) -> Micro:
        """Forward and backward of one micro-batch; no state changes."""
        return self._micros.get(state, batch, lambda: self._micro(state, batch))

    def anew(self, state: Mapping[str, np.ndarray], batch: Batch) -> Micro:
        """The same, computed again."""
        return self._micro(state, batch)

    def _micro(self, state: Mapping[str, np.ndarray], batch: Batch) -> Micro:
        given = self._nothing
        # A cell that trains in turn takes its later gradients behind updates, which need the earlier ones, at each cut.
        for _ in range(self.probe.turns + (self.probe.turns - 1) * len(self.probe.cuts)):
            result, after = self._run(state, batch, given)
            given = _laid_open(result, self._slots)
        gradients = {s.name: given[s.name] for s in self.probe.gradients}
        outputs = {n: v for n, v in result.items() if n not in self._nothing and n != WEIGHT}
        weight = float(np.sum(result[WEIGHT], dtype=np.float32)) if self._beside is not None else 1.0
        written = {n: after[n] for n in self.probe.written}
        for array in (*gradients.values(), *written.values()):
            array.flags.writeable = False  # they are remembered
        return Micro(outputs, gradients, written, weight)

    def update(
        self,
        state: Mapping[str, np.ndarray],
        batch: Batch,
        gradients: Values,
        changes: Changes | None = None,
        noise: Values | None = None,
    ) -> Values:
        """The state after one step of the original that was given these gradients instead of its own, with ``changes``
        of them on their way."""
        changes, given = changes or {}, {**gradients}
        if RAW in changes:
            given = changes[RAW](given, {**state}, noise)
        for cut in self.probe.cuts:
            own = _laid_open(self._run(state, batch, given)[0], cut.gradients)
            change = changes.get(cut.stage)
            given |= own if change is None else change(own, {**state}, self._carried(cut, noise))
        return self._run(state, batch, given)[1]

    def handed(self, stage: str, state: Mapping[str, np.ndarray], batch: Batch, gradients: Values) -> Values:
        """These gradients as they come to the cut of that stage, in which nothing changes them before."""
        given = {**gradients}
        for cut in self.probe.cuts:
            own = _laid_open(self._run(state, batch, given)[0], cut.gradients)
            if cut.stage == stage:
                return own
            given |= own
        raise KeyError(stage)

    def _carried(self, cut: Cut, noise: Values | None) -> Values | None:
        """The noise of gradients as they leave the backward part, for those at a cut."""
        if noise is None:
            return None
        of = {w: noise[s.name] for s in reversed(self.probe.gradients) for w in s.weights}
        nothing = {s.name: np.zeros(s.type.shape) for s in cut.gradients}
        return {
            s.name: of[s.weights[0]] if of[s.weights[0]].shape == nothing[s.name].shape else nothing[s.name]
            for s in cut.gradients
        }

    def cycle(
        self,
        state: Mapping[str, np.ndarray],
        batches: Sequence[Batch],
        *,
        reduction: str = "mean",
        changes: Changes | None = None,
        dropped: Sequence[int] = (),
    ) -> Cycle:
        """One optimizer step for several micro-batches; ``dropped`` are the positions of those that do not count.
        ``changes`` stand in front of the updates, so what the cell keeps beside them sees the gradients as they are."""
        micros, before = self._walk(state, batches)
        kept = [m for i, m in enumerate(micros) if i not in dropped]
        averaged, magnitudes = self._reduce(kept, reduction)
        own = self.update(before, batches[-1], averaged) if changes and self.probe.beside else {}
        beside = {name: own[name] for name in self.probe.beside if name in own}
        after = {**self.update(before, batches[-1], averaged, changes), **beside}

        def moved() -> tuple[Values, ...]:
            floor = self._noise(state, batches[0], magnitudes)
            found = []
            for direction in (1.0, -1.0):
                noise = {n: direction * floor[n] for n in averaged}
                given = {n: (g + noise[n]).astype(g.dtype) for n, g in averaged.items()}
                found.append({**self.update(before, batches[-1], given, changes, noise), **beside})
            return tuple(found)

        return Cycle(tuple(micros), averaged, Expected({**state}, after, moved))

    def noise(self, state: Mapping[str, np.ndarray], batch: Batch) -> Values:
        """The noise floor of the gradients of one micro-batch."""
        magnitudes = {n: np.abs(g.astype(np.float64)) for n, g in self.micro(state, batch).gradients.items()}
        return self._noise(state, batch, magnitudes)

    def averaged(self, state: Mapping[str, np.ndarray], batches: Sequence[Batch], reduction: str = "mean") -> Values:
        """The gradients of a cycle before any pass changes them."""
        return self._reduce(self._walk(state, batches)[0], reduction)[0]

    def _walk(self, state: Mapping[str, np.ndarray], batches: Sequence[Batch]) -> tuple[list[Micro], Values]:
        """All micro-batches of a cycle, and the state that the last of them saw."""
        current: Values = {**state}
        before = current
        micros = []
        for batch in batches:
            micros.append(self.micro(current, batch))
            # The update runs behind the last micro-batch, with what the update side takes from it.
            before, current = current, {**current, **micros[-1].written}
        return micros, before

    def _noise(self, state: Mapping[str, np.ndarray], batch: Batch, magnitudes: Values) -> Values:
        """The noise floor of each gradient, up or down at random."""
        owners = {slot.name: slot.weights[0] for slot in self.probe.gradients}
        changes = self._near.get(state, batch, lambda: self._changes(state, batch))
        floor = floors(magnitudes, owners, self.probe.unit, changes, self.vanishing(state, batch))
        seeds = {weight: i for i, weight in enumerate(self.probe.weights)}

        def pattern(gradient: str, shape: tuple[int, ...]) -> np.ndarray:
            """The same signs for all summands of a weight's gradient, which would else cancel. A sparse gradient has
            other rows than the weight."""
            whole = self.initial[owners[gradient]]
            rows = whole.shape if whole.size == math.prod(shape) else shape
            return signs(rows, np.random.default_rng(seeds[owners[gradient]])).reshape(shape)

        return {n: pattern(n, m.shape) * floor[n] for n, m in magnitudes.items()}

    def forget(self) -> None:
        """What is remembered is computed anew."""
        self._micros.clear()
        self._near.clear()

    def vanishing(self, state: Mapping[str, np.ndarray], batch: Batch) -> Mapping[str, float]:
        """Up to how much of each gradient is lost to the absolute spacing of half precision."""
        return dict.fromkeys((slot.name for slot in self.probe.gradients), self.probe.vanishing)

    def _changes(self, state: Mapping[str, np.ndarray], batch: Batch) -> list[Values]:
        """By how much gradients change when weights and inputs are moved by a rounding unit, twice at random."""
        micro = self.micro(state, batch)
        found = []
        for seed in (1, 2):
            rng = np.random.default_rng(seed)

            def near(value: np.ndarray, rng: np.random.Generator = rng) -> np.ndarray:
                if value.dtype.kind != "f":
                    return value
                by = 1 + self.probe.unit * rng.choice([-1.0, 1.0], value.shape)
                return np.asarray(value * by).astype(value.dtype)

            moved = {**state, **{w: near(state[w]) for w in self.probe.weights}}
            there = self._micro(moved, tuple(map(near, batch))).gradients
            found.append({n: np.abs(there[n].astype(np.float64) - g) for n, g in micro.gradients.items()})
        return found

    def _run(self, state: Mapping[str, np.ndarray], batch: Batch, given: Values) -> tuple[dict[str, Any], Values]:
        self._probe.load_state(state)
        result = self._probe.step(*batch, *({**self._nothing, **given}[name] for name in self._nothing))
        return result.outputs, self._probe.state()

    def _reduce(self, micros: Sequence[Micro], reduction: str) -> tuple[Values, Values]:
        """The sum, mean or weighted mean of the gradients, in float32 at least, and the sum of their magnitudes."""
        reduced: Values = {}
        magnitudes: Values = {}
        beside = self._beside if reduction == "weighted" else None
        counting = [m for m in micros if beside is None or beside.divisor(m.weight)]
        total = beside.divisor(sum(m.weight for m in counting)) if beside else len(counting)
        for slot in self.probe.gradients:
            dtype = np.dtype(slot.type.dtype.value)
            wide = np.dtype(np.float32) if dtype.itemsize < 4 else dtype
            sums = np.zeros(slot.type.shape, wide)
            magnitude = np.zeros(slot.type.shape, np.float64)
            with np.errstate(invalid="ignore", over="ignore"):
                for m in counting:
                    g = m.gradients[slot.name].astype(wide)
                    sums = sums + (g * wide.type(beside.divisor(m.weight)) if beside else g)
                    magnitude += np.abs(g)
                if reduction != "sum" and total:
                    sums = sums / wide.type(total)
                reduced[slot.name] = sums.astype(dtype)
            magnitudes[slot.name] = magnitude / (1 if reduction == "sum" else max(len(counting), 1))
        return reduced, magnitudes


def _laid_open(result: Mapping[str, Any], slots: Sequence[Slot]) -> Values:
    return {s.name: np.asarray(result[s.name]).reshape(s.type.shape).astype(s.type.dtype.value) for s in slots}
