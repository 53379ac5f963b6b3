"""Parameter groups: learning rate and weight decay of some weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...ir.analysis.training.own_writes import own_writes
from ...ir.core.wording import counted
from .changes import make_changes
from .context import Context, NotApplicable, Property, moved
from .probe import RAW
from .promises import GROUPS, SCHEDULE, covers
from .proximal import proximal_update
from .reference import Changes, Cycle, Values
from .report import EXACT, Deviation, Result
from .schedule import rates_of
from .tolerance import Expected, deviation


class ParameterGroups(Property):
    """The first cycle, for the weights of the groups (all others are judged with every cycle). ``lr_factor``: the
    weight's step is that of the original times the factor, its slots are the same, or in an optimizer that keeps steps
    in slots times the factor too. ``weight_decay``: what the original decays by is measured on it (what an update makes
    of no gradient, by what it makes of the weight as gradient); the difference to the group's decay is then added to
    the gradient. Where the optimizer decays apart from the gradient, the step may differ from the original's by a
    multiple of the weight alone. A weight that the cell itself writes behind its update (it bounds it) makes no such
    step: only its slots are judged. The tolerance is that of any update."""

    name = "parameter groups"
    promise = "weights of a group get its learning rate and decay, the others keep theirs"

    def check(self, c: Context) -> Result:
        factors, decays = self._given(c)
        self._needs(c, factors)
        scheduled = bool(c.promises.having(SCHEDULE))
        start = c.scheduled(c.reference.initial) if scheduled else c.moving(sorted(c.grouped))[0]
        if scheduled and not any(start[name].any() for name in rates_of(c.base)):
            raise NotApplicable("the learning rate of the first update is zero")
        batches = c.micro_batches(0)
        old, apart = self._own_decay(c, start, c.expected(start, batches))
        unknown = sorted(n for n in c.grouped if decays[n] is not None and n not in old)
        if unknown:
            raise NotApplicable(f"the optimizer keeps nothing that shows by what it decays '{unknown[0]}'")
        apart = {n for n in apart & set(c.grouped) if decays[n] is not None}
        changes = _decaying(c, {n: d - old[n] for n, d in decays.items() if d is not None and n not in apart})
        wanted = c.reference.cycle(start, batches, reduction=c.promises.reduction, changes=changes)
        c.subject.restart()
        if not scheduled:
            c.subject.load(start)
        ran = c.subject.cycle(batches)
        if not ran.last.updated:
            raise NotApplicable("the cycle overflows with this data")
        written = {name for graph in c.base.graphs.values() for name in own_writes(graph).values()}
        bounded = sorted(name for name in c.grouped if name in written and factors[name] != 1)
        deviations = [EXACT]
        for name in c.reference.trained:
            weight = c.reference.serves(name)
            if weight not in c.grouped or name in bounded or name not in ran.state:
                continue
            if name == weight and weight in apart:
                deviations.append(_along(name, ran.state, wanted.expected, start[name], factors[weight]))
            else:
                deviations.append(_scaled(name, ran.state, wanted.expected, factors[weight], is_slot=name != weight))
        detail = counted(len(c.grouped), "weight")
        if bounded:
            detail += f", but for the steps of {counted(len(bounded), 'weight')} that the cell writes by itself besides"
        return self.verdict(deviations, detail, shown=moved(wanted, sorted(c.grouped)))

    @staticmethod
    def _needs(c: Context, factors: dict[str, float]) -> None:
        """Raises NotApplicable where no cycle could show what the groups do."""
        if not c.promises.having(GROUPS):
            raise NotApplicable("the pipeline has no parameter-groups")
        if not c.grouped:
            raise NotApplicable("the groups change neither learning rate nor decay")
        c.needs_update()
        if c.tagged:
            raise NotApplicable("gradients are centralized behind the decay")
        proximal = proximal_update(c.base) if any(f not in (0.0, 1.0) for f in factors.values()) else None
        if proximal is not None:
            raise NotApplicable(f"a step of {proximal} is not proportional to its learning rate")

    @staticmethod
    def _given(c: Context) -> tuple[dict[str, float], dict[str, float | None]]:
        factors = dict.fromkeys(c.grouped, 1.0)
        decays: dict[str, float | None] = dict.fromkeys(c.grouped)
        for group in c.promises.having(GROUPS):
            options = group.options()
            for name in c.grouped:
                if covers(group, name, len(c.base.state[name].shape)):
                    factors[name] *= 1.0 if options["lr_factor"] is None else options["lr_factor"]
                    decays[name] = decays[name] if options["weight_decay"] is None else options["weight_decay"]
        return factors, decays

    @staticmethod
    def _own_decay(c: Context, moving: Mapping[str, np.ndarray], plain: Cycle) -> tuple[dict[str, float], set[str]]:
        """By what the original decays each weight through its gradient, and the weights that it decays apart from
        it. Seen with the learning rate of ``moving``, where that of the first update may be zero, and with empty slots,
        in which nothing but the decay is left then."""
        probe, batch = c.reference.probe, c.micro_batches(0)[-1]
        rates = {n: moving[n] for n, role in c.reference.roles.items() if role == "hyperparameter" and n in moving}
        start = {**c.reference.initial, **rates}
        zero, linear = _linear_states(c, plain.gradients, start)
        asked: Values = {}
        done: set[str] = set()
        for slot in probe.gradients:
            weight = slot.weights[0]
            nothing = np.zeros(slot.type.shape, slot.type.dtype.value)
            asked[slot.name] = nothing if weight in done else start[weight].astype(nothing.dtype)
            done.add(weight)
        answer = c.reference.update(start, batch, asked)
        old: dict[str, float] = {}
        apart: set[str] = set()
        for weight in probe.weights:
            # Slots that start from zero hold the decay to the last digit; weights only what their own size leaves.
            for name in sorted((n for n in linear if c.reference.serves(n) == weight), key=lambda n: n == weight):
                if start[name].shape != start[weight].shape:
                    continue
                of_weight = answer[name].astype(np.float64) - zero[name]
                of_nothing = zero[name].astype(np.float64) - start[name]
                if np.abs(of_weight).max() > 0:
                    old[weight] = float((of_nothing * of_weight).sum() / np.square(of_weight).sum())
                    break
            if old.get(weight) == 0.0 and zero[weight].tobytes() != start[weight].tobytes():
                apart.add(weight)
        return old, apart


def _linear_states(c: Context, gradients: Values, start: Values) -> tuple[Values, set[str]]:
    """The state after an update of ``start`` without gradient, and what is linear in the gradients: twice the gradient
    moves it twice as far from there.

    Measured with gradients that move state no less than decay does, since the two enter most optimizers as one sum: the
    root in RMSProp bends what is decayed even where its gradient is next to nothing."""
    batch = c.micro_batches(0)[-1]

    def update(factor: float) -> Values:
        scaled = {n: g * g.dtype.type(factor * size[owners[n]]) for n, g in gradients.items()}
        return c.reference.update(start, batch, scaled)

    owners = {slot.name: slot.weights[0] for slot in c.reference.probe.gradients}
    size = dict.fromkeys(owners.values(), 1.0)
    names = [n for n in c.reference.trained if start[n].dtype.kind == "f" and start[n].size]
    zero = c.reference.update(start, batch, {n: np.zeros_like(g) for n, g in gradients.items()})
    one = update(1)
    for name in names:
        weight, moved = c.reference.serves(name), float(np.abs(_difference(one, zero, name)).max())
        if weight in size and 0 < moved < np.inf:
            by = float(np.abs(_difference(zero, start, name)).max()) / moved
            size[weight] = max(size[weight], min(by, 2.0**20))
    one, two = update(1), update(2)
    linear = set()
    for name in names:
        a, b = (_difference(x, zero, name) for x in (one, two))
        moved = float(np.abs(b).max())
        if moved > 0 and np.abs(b - 2 * a).max() <= 1e-3 * moved:
            linear.add(name)
    return zero, linear


def _difference(a: Values, b: Values, name: str) -> np.ndarray:
    found: np.ndarray = a[name].astype(np.float64) - b[name]
    return found


def _decaying(c: Context, more: dict[str, float]) -> Changes:
    """The promised changes of gradients, and behind them ``more`` of each weight added to its gradient."""
    changes = make_changes(c.reference.probe, c.promises, set())
    probe = c.reference.probe
    stage, slots = (probe.cuts[-1].stage, probe.cuts[-1].gradients) if probe.cuts else (RAW, probe.gradients)
    base = changes.get(stage)
    first = {slot.weights[0]: slot.name for slot in reversed(slots)}

    def change(given: Values, state: Values, noise: Values | None = None) -> Values:
        out = dict(given if base is None else base(given, state, noise))
        for weight, by in more.items():
            g = out[first[weight]]
            out[first[weight]] = (g + by * state[weight]).astype(g.dtype)
        return out

    return {**changes, stage: change}


def _scaled(name: str, state: Values, expected: Expected, factor: float, *, is_slot: bool) -> Deviation:
    """The deviation from the step times the factor; a slot may keep the gradient, or the step."""
    factors = {1.0, factor} if is_slot else {factor}
    return min((_judge(name, state, expected, by) for by in factors), key=lambda d: d.excess)


def _judge(name: str, state: Values, expected: Expected, factor: float) -> Deviation:
    before = expected.before[name]
    if before.dtype.kind != "f":
        return deviation(name, state[name], expected.state[name], before)

    def times(after: np.ndarray) -> np.ndarray:
        wide: np.ndarray = before + factor * (after.astype(np.float64) - before)
        return wide.astype(before.dtype)

    # Multiplied by the factor is what has been rounded to a weight: as much larger is the rounding.
    unit = np.spacing(np.maximum(np.abs(before), np.abs(expected.state[name])))
    moved = [times(m[name]) for m in expected.moved] + [times(expected.state[name]) + max(factor, 1.0) * unit]
    return deviation(name, state[name], times(expected.state[name]), before, moved)


def _along(name: str, state: Values, expected: Expected, weight: np.ndarray, factor: float) -> Deviation:
    """The difference without its part along the weight."""
    w = weight.astype(np.float64)
    difference = state[name].astype(np.float64) - (w + factor * (expected.state[name].astype(np.float64) - w))
    share = float((difference * w).sum() / max(np.square(w).sum(), 1e-300))
    return _judge(name, {name: (state[name] - share * w).astype(weight.dtype)}, expected, factor)
