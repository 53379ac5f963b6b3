"""Centralized updates have zero mean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .context import Context, NotApplicable
from .promises import CENTRALIZATION
from .reference import Values
from .report import EXACT, FAILED, PASSED, VACUOUS, Deviation, Result
from .tolerance import NOISE


class Centralization:
    """In the first cycle, from slots of zero, whatever an optimizer keeps that is linear in the gradient (a momentum, a
    first moment, the step of plain descent) has no mean over all axes but the first. Which state is linear is measured
    on the original's update. Judged before weight decay that comes after it, by the difference to an update with no
    gradient. Tolerance: the rounding of a sum of elements of the size that they have before the mean is taken away."""

    name = "centralization"
    promise = "updates of centralized weights have zero mean over all axes but the first"

    def check(self, c: Context) -> Result:
        if c.promises.one(CENTRALIZATION) is None:
            raise NotApplicable("the pipeline has no lower-gradient-centralization")
        c.needs_update(stages=False)
        weights = sorted(c.tagged & set(c.reference.probe.weights) & set(c.subject.names))
        if not weights:
            return Result(self.name, FAILED, "no weight of the program is tagged", None, self.promise)
        start = c.reference.initial
        batches = c.micro_batches(0)
        raw = c.reference.cycle(start, batches, reduction=c.promises.reduction)
        zero, linear = linear_states(c, raw.gradients)
        c.subject.restart()
        ran = c.subject.cycle(batches)
        found, shown, judged = EXACT, False, 0
        for weight in weights:
            rows = []
            for name in linear:
                if c.reference.serves(name) != weight or start[name].shape != start[weight].shape:
                    continue
                # Decay behind centralization is in both; decay before it is centralized with the gradient. ASGD may
                # have both kinds.
                after = ran.state[name]
                decayed = zero[name].tobytes() != start[name].tobytes() and len(after) > 2
                size = float(np.abs(raw.expected.state[name].astype(np.float64) - zero[name]).max())
                ours = min(
                    (
                        _mean(after, start[name], size),
                        _mean(after, zero[name], size),
                        *([_mean(after, start[name], size, decayed=True)] if decayed else []),
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
        detail = f"{judged} of {len(weights)} tagged weights"
        status = FAILED if found.excess > 1 else PASSED if shown else VACUOUS
        return Result(self.name, status, detail, found, self.promise)


def linear_states(c: Context, gradients: Values) -> tuple[Values, list[str]]:
    """The state after an update without gradient, and what is linear in the gradient: twice the gradient moves it
    twice as far from there."""
    start, batch = c.reference.initial, c.micro_batches(0)[-1]
    none = {n: np.zeros_like(g) for n, g in gradients.items()}
    twice = {n: g * g.dtype.type(2) for n, g in gradients.items()}
    zero, one, two = (c.reference.update(start, batch, g) for g in (none, gradients, twice))
    linear = []
    for name in c.reference.trained:
        if start[name].dtype.kind != "f" or not start[name].size:
            continue
        a, b = (x[name].astype(np.float64) - zero[name].astype(np.float64) for x in (one, two))
        if np.abs(a).max() > 0 and np.abs(b - 2 * a).max() <= 1e-3 * np.abs(b).max():
            linear.append(name)
    return zero, linear


def _mean(state: np.ndarray, start: np.ndarray, whole: float = 0.0, decayed: bool = False) -> Deviation:
    """How far the means of a difference lie from zero; ``decayed``: from one multiple of the means of ``start``.
    ``whole``: how large the difference was before the mean was taken from it."""
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
    tolerance = float(unit) + NOISE * float(np.finfo(state.dtype).eps) * max(size, whole)
    worst = float(means.max())
    return Deviation(
        "", worst, worst / size, worst / float(unit), tolerance / size, tolerance / float(unit), worst / tolerance
    )
