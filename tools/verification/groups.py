"""Parameter groups: the learning rate and the weight decay that some weights get.

``lr_factor``: the weight's step is that of the original times the factor, its slots are the same, or in an optimizer
that keeps steps in slots times the factor too. ``weight_decay``: what the original decays by is measured on it (what an
update makes of no gradient, by what it makes of the weight as gradient); the difference to the group's decay is then
added to the gradient. Where the optimizer decays apart from the gradient, the step may differ from the original's by a
multiple of the weight alone. A weight that the cell itself writes behind its update (it bounds it) makes no such step:
only its slots are judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ...ir.analysis.training.own_writes import own_writes
from .probe import RAW, Probe
from .promises import GROUPS, Promises, covers
from .reference import Batch, Changes, Reference, Values
from .report import EQUAL, Deviation
from .tolerance import Expected, deviation, equal

_PROXIMAL = ("Proximal", "Ftrl")
"""Updates that shrink a weight by its rate, besides what the gradient does, so that small ones stop at zero."""


@dataclass(frozen=True)
class Groups:
    """``weights``: those whose update a group changes; ``unknown``: why that is not computed here, "" where it is.
    ``more``: how much more of each weight is added to its gradient than the original adds. ``apart``: weights that
    decay apart from their gradient."""

    weights: frozenset[str] = frozenset()
    unknown: str = ""
    factors: Mapping[str, float] | None = None
    more: Mapping[str, float] | None = None
    apart: frozenset[str] = frozenset()
    bounded: frozenset[str] = frozenset()

    def added(self, changes: Changes, probe: Probe) -> Changes:
        """``changes``, and behind them the decay of the groups."""
        if not self.more:
            return changes
        stage, slots = (probe.cuts[-1].stage, probe.cuts[-1].gradients) if probe.cuts else (RAW, probe.gradients)
        before, first = changes.get(stage), {slot.weights[0]: slot.name for slot in reversed(slots)}

        def change(given: Values, state: Values, noise: Values | None = None) -> Values:
            out = dict(given if before is None else before(given, state, noise))
            for weight, by in (self.more or {}).items():
                g = out[first[weight]]
                out[first[weight]] = (g + by * state[weight]).astype(g.dtype)
            return out

        return {**changes, stage: change}

    def deviations(self, state: Values, expected: Expected, weight_of: Mapping[str, str]) -> Iterator[Deviation]:
        """Of the groups' weights and slots, by name. ``weight_of``: the weight that each state is, or serves."""
        for name, weight in weight_of.items():
            if self.unknown or self.factors is None or name in self.bounded or (weight and weight not in self.weights):
                continue
            factor = self.factors.get(weight, 1.0)
            if name == weight and weight in self.apart:
                yield _along(name, state, expected, factor, expected.before[name])
            elif name == weight:
                yield _judge(name, state, expected, factor)
            else:  # a slot keeps the gradient, or the step, or averages the weight; whose it is may be unknown
                found = min((_judge(name, state, expected, by) for by in {1.0, factor}), key=lambda d: d.excess)
                for other in [weight] if weight else self.weights:
                    if found.excess > 1 and state[name].shape == state[other].shape:
                        step = expected.state[other].astype(np.float64) - expected.before[other]
                        unit = np.spacing(np.abs(expected.before[other]))
                        found = min(found, _along(name, state, expected, 1.0, step, unit), key=lambda d: d.excess)
                yield found


def groups_of(
    promises: Promises, reference: Reference, start: Mapping[str, np.ndarray], gradients: Values, batch: Batch
) -> Groups:
    """``start``: a state from which an update without groups moves weights, by these ``gradients``."""
    factors, decays = dict[str, float](), dict[str, float | None]()
    for group in promises.having(GROUPS):
        by, own = group.options()["lr_factor"], group.options()["weight_decay"]
        for name in reference.probe.weights if (by, own) != (None, None) else ():
            if covers(group, name, len(reference.initial[name].shape)):
                factors[name] = factors.get(name, 1.0) * (1.0 if by is None else by)
                decays[name] = decays.get(name) if own is None else own
    if not factors:
        return Groups()
    weights = frozenset(factors)
    names = (node.op.name for node in reference.base.all_nodes())
    proximal = next((name for name in names if any(part in name for part in _PROXIMAL)), None)
    if proximal and any(f not in (0.0, 1.0) for f in factors.values()):
        return Groups(weights, f"a step of {proximal} is not proportional to its learning rate")
    old, apart = _own_decay(reference, start, gradients, batch)
    given = {n: d for n, d in decays.items() if d is not None}
    for name in sorted(given.keys() - old):
        return Groups(weights, f"the optimizer keeps nothing that shows by what it decays '{name}'")
    apart &= given.keys()
    written = {name for graph in reference.base.graphs.values() for name in own_writes(graph).values()}
    bounded = frozenset(name for name in weights & written if factors[name] != 1)
    more = {n: d - old[n] for n, d in given.items() if n not in apart}
    return Groups(weights, "", factors, more, frozenset(apart), bounded)


def _own_decay(
    reference: Reference, moving: Mapping[str, np.ndarray], gradients: Values, batch: Batch
) -> tuple[dict[str, float], set[str]]:
    """By what the original decays each weight through its gradient, and the weights that it decays apart from it. Seen
    with the learning rate of ``moving``, where that of the first update may be zero, and with empty slots, in which
    nothing but the decay is left then."""
    probe = reference.probe
    rates = {n: moving[n] for n, role in reference.roles.items() if role == "hyperparameter" and n in moving}
    start = {**reference.initial, **rates}
    zero, linear = _linear_states(reference, gradients, start, batch)
    asked: Values = {}
    done: set[str] = set()
    for slot in probe.gradients:
        weight = slot.weights[0]
        nothing = np.zeros(slot.type.shape, slot.type.dtype.value)
        asked[slot.name] = nothing if weight in done else start[weight].astype(nothing.dtype)
        done.add(weight)
    answer = reference.update(start, batch, asked)
    old: dict[str, float] = {}
    apart: set[str] = set()
    for weight in probe.weights:
        # Slots that start from zero hold the decay to the last digit; weights only what their own size leaves.
        for name in sorted((n for n in linear if reference.serves(n) == weight), key=lambda n: n == weight):
            of_weight = _difference(answer, zero, name)
            if start[name].shape == start[weight].shape and of_weight.any():
                old[weight] = float((_difference(zero, start, name) * of_weight).sum() / np.square(of_weight).sum())
                break
        if old.get(weight) == 0.0 and not equal(zero[weight], start[weight]):
            apart.add(weight)
    return old, apart


def _linear_states(reference: Reference, gradients: Values, start: Values, batch: Batch) -> tuple[Values, set[str]]:
    """The state after an update of ``start`` without gradient, and what is linear in the gradients: twice the gradient
    moves it twice as far from there.

    Measured with gradients that move state no less than decay does, since the two enter most optimizers as one sum: the
    root in RMSProp bends what is decayed even where its gradient is next to nothing."""

    def update(factor: float) -> Values:
        scaled = {n: g * g.dtype.type(factor * size[owners[n]]) for n, g in gradients.items()}
        return reference.update(start, batch, scaled)

    owners = {slot.name: slot.weights[0] for slot in reference.probe.gradients}
    size = dict.fromkeys(owners.values(), 1.0)
    names = [n for n in reference.trained if start[n].dtype.kind == "f" and start[n].size]
    zero = reference.update(start, batch, {n: np.zeros_like(g) for n, g in gradients.items()})
    one = update(1)
    for name in names:
        weight, moved = reference.serves(name), float(np.abs(_difference(one, zero, name)).max())
        if weight in size and 0 < moved < np.inf:
            by = float(np.abs(_difference(zero, start, name)).max()) / moved
            size[weight] = max(size[weight], min(by, 2.0**20))
    one, two = update(1), update(2)
    found = {n: (_difference(one, zero, n), _difference(two, zero, n)) for n in names}
    return zero, {n for n, (a, b) in found.items() if b.any() and np.abs(b - 2 * a).max() <= 1e-3 * np.abs(b).max()}


def _difference(a: Values, b: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    found: np.ndarray = a[name].astype(np.float64) - b[name]
    return found


def _judge(name: str, state: Values, expected: Expected, factor: float, more: np.ndarray | float = 0.0) -> Deviation:
    """The deviation from the step times the factor. ``more``: what else is rounded."""
    before = expected.before[name]

    def times(after: np.ndarray) -> np.ndarray:
        wide: np.ndarray = before + factor * (after.astype(np.float64) - before)
        return wide.astype(before.dtype) if before.dtype.kind == "f" else after

    wanted = times(expected.state[name])
    if equal(state[name], wanted):
        return EQUAL
    if before.dtype.kind != "f":
        return deviation(name, state[name], wanted, before)
    # Multiplied by the factor is what has been rounded to a weight: as much larger is the rounding.
    unit = np.spacing(np.maximum(np.abs(before), np.abs(expected.state[name])))
    moved = [times(m[name]) for m in expected.moved] + [wanted + max(factor, 1.0) * unit + more]
    return deviation(name, state[name], wanted, before, moved)


def _along(
    name: str, state: Values, expected: Expected, factor: float, way: np.ndarray, unit: np.ndarray | float = 0.0
) -> Deviation:
    """The difference without its part along ``way``, which is rounded to ``unit``."""
    before, way = expected.before[name].astype(np.float64), way.astype(np.float64)
    difference = state[name].astype(np.float64) - (before + factor * (expected.state[name].astype(np.float64) - before))
    share = float((difference * way).sum() / max(np.square(way).sum(), 1e-300))
    found = {name: (state[name] - share * way).astype(state[name].dtype)}
    return _judge(name, found, expected, factor, abs(share) * unit)


def weights_of(reference: Reference, names: Collection[str]) -> dict[str, str]:
    """The weight that each of these states is, is a slot or a copy of; "" for state of the whole optimizer."""
    told = {n: v.weight for n, v in reference.base.state.items()}
    serves = {n: reference.serves(n) or told.get(n, "") for n in reference.trained if n in names}
    return {n: reference.probe.copies.get(n, weight) for n, weight in serves.items()}
