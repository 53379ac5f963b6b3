"""The changes of averaged gradients by passes before the optimizer gets them, in plain arithmetic: clipping and
means."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

import numpy as np

from ...ir.analysis.training.stages import CENTRALIZE
from .probe import RAW, Cut, Probe
from .promises import CENTRALIZATION, CLIP, Promises
from .reference import Changes, Values
from .tolerance import NOISE


def stages_of(promises: Promises) -> tuple[str, ...]:
    """The stages at which passes change the gradients of a cycle, in their order."""
    asked = {"clip": CLIP, CENTRALIZE: CENTRALIZATION}
    return tuple(stage for stage, name in asked.items() if promises.one(name) is not None)


def make_changes(probe: Probe, promises: Promises, tagged: Collection[str], frozen: Collection[str] = ()) -> Changes:
    """All of them, by the stage at which each happens. ``tagged`` are the weights whose gradients are centralized,
    ``frozen`` those that have no part in a common norm, be it the training cell's own."""
    clips = [(clip.options()["by"], float(clip.options()["limit"])) for clip in promises.having(CLIP)]
    changes: Changes = {RAW: lambda given, *_: without(probe, given, frozen)} if frozen else {}

    def clip(cut: Cut, given: Values, _: Values, noise: Values | None = None) -> Values:
        for by, limit in clips:
            given = clipped(cut, given, by, limit, frozen)
        return given

    def centralize(cut: Cut, given: Values, _: Values, noise: Values | None = None) -> Values:
        if clips and noise is not None:
            given = rounded(given, noise)
        return centralized(cut, given, tagged, noise)

    for cut in probe.cuts:
        changes[cut.stage] = partial(clip if cut.stage == "clip" else centralize, cut)
    return changes


def totals(probe: Probe | Cut, given: Values) -> dict[str, np.ndarray]:
    """The gradient of each weight: the sum of its summands."""
    found: dict[str, np.ndarray] = {}
    for slot in probe.gradients:
        wide = given[slot.name].astype(np.float64 if given[slot.name].dtype.itemsize > 4 else np.float32)
        for weight in slot.weights:
            found[weight] = found[weight] + wide if weight in found else wide
    return found


def global_norm(gradients: Sequence[np.ndarray]) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt(sum(float(np.square(g, dtype=np.float64).sum()) for g in gradients)))


def without(probe: Probe, given: Values, frozen: Collection[str]) -> Values:
    """With zeros for the gradients of weights that are frozen."""
    still = {slot.name for slot in probe.gradients if all(weight in frozen for weight in slot.weights)}
    return {n: np.zeros_like(g) if n in still else g for n, g in given.items()}


def clipped(probe: Probe | Cut, given: Values, by: str, limit: float, frozen: Collection[str] = ()) -> Values:
    """By the norm of all gradients, of each, or by value. Weights with the same gradient count each."""
    whole = {n: g for n, g in totals(probe, given).items() if n not in frozen}
    out: Values = {}
    if by == "value":
        done: set[str] = set()
        for slot in probe.gradients:
            g = given[slot.name]
            first, *_ = slot.weights
            limited = np.clip(whole.get(first, g), -limit, limit).astype(g.dtype)
            # The first summand carries the limited sum.
            out[slot.name] = np.zeros_like(g) if first in done else limited
            done.add(first)
        return out
    norm = global_norm(list(whole.values()))
    for slot in probe.gradients:
        g = given[slot.name]
        own = norm if by == "global-norm" else global_norm([whole.get(slot.weights[0], g)])
        wide = np.dtype(np.float32) if g.dtype.itemsize < 4 else g.dtype
        out[slot.name] = (g.astype(wide) * wide.type(limit / max(own, limit))).astype(g.dtype)
    return out


def rounded(given: Values, noise: Values) -> Values:
    """Off by what clipping rounds: where all of a row is clipped, only this is left when its mean is taken away."""
    return {
        n: (g + np.sign(noise[n]) * NOISE * np.finfo(g.dtype).eps * np.abs(g).max(initial=0.0)).astype(g.dtype)
        for n, g in given.items()
    }


def centralized(probe: Probe | Cut, given: Values, tagged: Collection[str], noise: Values | None = None) -> Values:
    """Without the mean over all axes but the first. With ``noise``: off by what this mean rounds, in the order in which
    it is added up. All that an element without a gradient gets is the mean, and such an element has no noise."""
    out = dict(given)
    for slot in probe.gradients:
        if slot.weights[0] in tagged:
            g = given[slot.name]
            axes = tuple(range(1, g.ndim))
            left = g - g.mean(axis=axes, keepdims=True, dtype=np.float64)
            if noise is not None:
                unit = np.finfo(np.result_type(g.dtype, np.float32)).eps  # halves are added up in float32
                size = np.abs(g).mean(axis=axes, keepdims=True, dtype=np.float64)
                left += np.copysign(NOISE * unit * size, noise[slot.name])
            out[slot.name] = left.astype(g.dtype)
    return out
