"""Centralized updates have zero mean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ir.core.wording import counted
from .context import Context, NotApplicable, Property
from .promises import CENTRALIZATION
from .proximal import proximal_update
from .reference import Values
from .report import EXACT, FAILED, PASSED, VACUOUS, Deviation, Result
from .tolerance import NOISE


class Centralization(Property):
    """In the first cycle, from slots of zero, whatever an optimizer keeps that is linear in the gradient (a momentum, a
    first moment, the step of plain descent) has no mean over all axes but the first. Which state is linear is measured
    on the original's update. Judged before weight decay that comes after it, by the difference to an update with no
    gradient. Tolerance: the rounding of a sum of elements of the size that they have before the mean is taken away, and
    what was measured of the state's departure from being linear (a gradient far below RMSProp's epsilon)."""

    name = "centralization"
    promise = "updates of centralized weights have zero mean over all axes but the first"

    def check(self, c: Context) -> Result:
        if c.promises.one(CENTRALIZATION) is None:
            raise NotApplicable("the pipeline has no lower-gradient-centralization")
        if not c.tagged and not any(r.matched for r in c.program.reports if r.name == CENTRALIZATION):
            raise NotApplicable("lower-gradient-centralization matched nothing")
        c.needs_update(stages=False)
        weights = sorted(c.tagged & set(c.reference.probe.weights) & set(c.subject.names))
        if not weights:
            return self.failed("no weight of the program is tagged")
        start = c.reference.initial
        batches = c.micro_batches(0)
        raw = c.reference.cycle(start, batches, reduction=c.promises.reduction)
        zero, linear = linear_states(c, raw.gradients, _centralized(c, raw.gradients))
        c.subject.restart()
        ran = c.subject.cycle(batches)
        found, shown, judged = EXACT, False, 0
        shrinking = proximal_update(c.base) is not None
        for weight in weights:
            rows = []
            for name, bent in linear.items():
                if c.reference.serves(name) != weight or start[name].shape != start[weight].shape:
                    continue
                # Decay behind centralization is in both; decay before it is centralized with the gradient. ASGD may
                # have both kinds; the mean of a single row, though, is a multiple of any other.
                after = ran.state[name]
                decayed = zero[name].tobytes() != start[name].tobytes() and len(after) > 1
                if decayed and name == weight and shrinking:
                    continue  # by its rate, beside the decay that is centralized: the two cannot be told apart
                size = float(np.abs(raw.expected.state[name].astype(np.float64) - zero[name]).max())
                ours = min(
                    (
                        _mean(after, start[name], size, bent),
                        _mean(after, zero[name], size, bent),
                        *([_mean(after, start[name], size, bent, decayed=True)] if decayed else []),
                    ),
                    key=lambda d: d.excess,
                )
                natural = _mean(raw.expected.state[name], zero[name])
                rows.append((ours, natural.excess > 1))
            if not rows:
                continue
            judged += 1
            best, uncentralized = min(rows, key=lambda row: row[0].excess)
            shown = shown or uncentralized
            if best.excess > found.excess:
                found = replace(best, where=weight)
        if not judged:
            raise NotApplicable("the optimizer keeps nothing that is linear in a gradient")
        detail = f"{judged} of {counted(len(weights), 'tagged weight')}"
        status = FAILED if found.excess > 1 else PASSED if shown else VACUOUS
        return self.result(status, detail, found)


def linear_states(
    c: Context, gradients: Values, *more: Values, start: Values | None = None
) -> tuple[Values, dict[str, float]]:
    """The state after an update without gradient, and what is linear in all the given gradients: twice the gradient
    moves it twice as far from there. With it how far it is from that, at most. ``start``: what is updated, by default
    the original's first state.

    Measured with gradients that move state no less than decay does, since the two enter most optimizers as one sum: the
    root in RMSProp bends what is decayed even where its gradient is next to nothing."""
    start, batch = c.reference.initial if start is None else start, c.micro_batches(0)[-1]

    def update(given: Values, factor: float) -> Values:
        scaled = {n: g * g.dtype.type(factor * size[owners[n]]) for n, g in given.items()}
        return c.reference.update(start, batch, scaled)

    owners = {slot.name: slot.weights[0] for slot in c.reference.probe.gradients}
    size = dict.fromkeys(owners.values(), 1.0)
    names = [n for n in c.reference.trained if start[n].dtype.kind == "f" and start[n].size]
    zero = c.reference.update(start, batch, {n: np.zeros_like(g) for n, g in gradients.items()})
    one = update(gradients, 1)
    for name in names:
        weight, moved = c.reference.serves(name), float(_distance(one, zero, name).max())
        if weight in size and 0 < moved < np.inf:
            by = float(_distance(zero, start, name).max()) / moved
            size[weight] = max(size[weight], min(by, 2.0**20))
    linear = dict.fromkeys(names, 0.0)
    largest: dict[str, float] = {}
    for given in (gradients, *more):
        one, two = update(given, 1), update(given, 2)
        for name in list(linear):
            a, b = (x[name].astype(np.float64) - zero[name].astype(np.float64) for x in (one, two))
            moved = largest.setdefault(name, float(np.abs(b).max()))
            linear[name] = max(linear[name], float(np.abs(b - 2 * a).max()))
            if not moved > 0 or not linear[name] <= 1e-3 * moved:
                del linear[name]
    return zero, linear


def _centralized(c: Context, gradients: Values) -> Values:
    """The gradient that the optimizer gets: a proximal step, say, may be linear in a gradient and not in its
    centralized form."""
    tagged = {slot.name for slot in c.reference.probe.gradients if c.tagged & set(slot.weights)}
    centralized = dict(gradients)
    for name in tagged:
        g = gradients[name].astype(np.float64)
        centralized[name] = (g - g.mean(axis=tuple(range(1, g.ndim)), keepdims=True)).astype(gradients[name].dtype)
    return centralized


def _distance(a: Values, b: Values, name: str) -> np.ndarray:
    found: np.ndarray = np.abs(a[name].astype(np.float64) - b[name])
    return found


def _mean(
    state: np.ndarray, start: np.ndarray, whole: float = 0.0, bent: float = 0.0, decayed: bool = False
) -> Deviation:
    """How far the means of a difference lie from zero; ``decayed``: from one multiple of the means of ``start``.
    ``whole``: how large the difference was before the mean was taken from it; ``bent``: how far from linear."""
    difference = state.astype(np.float64) - start.astype(np.float64)
    axes = tuple(range(1, difference.ndim))
    means = difference.mean(axis=axes)
    if decayed:
        level = start.astype(np.float64).mean(axis=axes)
        means = means - level * (means @ level) / max(float(level @ level), np.finfo(np.float64).tiny)
    means = np.abs(means)
    size = float(np.abs(difference).max()) or np.inf
    unit = np.spacing(np.abs(state).max().astype(state.dtype)).astype(np.float64)
    # Each element is rounded when it is stored; the mean itself in the size of the gradient that it is taken from.
    tolerance = float(unit) + NOISE * float(np.finfo(state.dtype).eps) * max(size, whole) + bent
    worst = float(means.max())
    return Deviation(
        "", worst, worst / size, worst / float(unit), tolerance / size, tolerance / float(unit), worst / tolerance
    )
