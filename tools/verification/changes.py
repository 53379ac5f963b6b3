"""The changes of averaged gradients by passes before the optimizer gets them, in plain arithmetic: clipping and
means."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ...ir.analysis.training.gradient_path import gradient_paths
from ...ir.core.program import Program
from .probe import Probe
from .promises import CENTRALIZATION, CLIP, Promises
from .reference import Change, Values
from .tolerance import NOISE


def exporter_stages(base: Program) -> set[str]:
    """The training cell's own changes of gradients, before any pass: unscaling, clipping, weight decay."""
    ((_, graph),) = base.graphs.items()
    return {point.stage for path in gradient_paths(graph) for point in path.points if point.stage}


def obstacle(promises: Promises, stages: set[str]) -> str:
    """Why what passes do to gradients cannot be done before the original's update side gets them; "" if it can."""
    if promises.one(CLIP) is not None and stages & {"unscale", "clip"}:
        return "the training cell unscales or clips its gradients by itself, before they are clipped"
    if promises.one(CENTRALIZATION) is not None and stages & {"clip", "weight-decay", "centralize"}:
        return "the training cell clips or decays its gradients by itself, before they are centralized"
    return ""


def make_change(
    probe: Probe, promises: Promises, tagged: Collection[str], frozen: Collection[str] = ()
) -> Change | None:
    """All of it, in the order in which it must happen. ``tagged`` are the weights whose gradients are centralized,
    ``frozen`` those that have no part in a common norm, be it the training cell's own."""
    clips = [(clip.options()["by"], float(clip.options()["limit"])) for clip in promises.having(CLIP)]
    centralizes = promises.one(CENTRALIZATION) is not None
    if not (clips or centralizes or frozen):
        return None

    def change(given: Values, _: Values, noise: Values | None = None) -> Values:
        given = without(probe, given, frozen)
        for by, limit in clips:
            given = clipped(probe, given, by, limit, frozen)
        if centralizes:
            if clips and noise is not None:
                given = rounded(given, noise)
            given = centralized(probe, given, tagged, noise)
        return given

    return change


def totals(probe: Probe, given: Values) -> dict[str, np.ndarray]:
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


def clipped(probe: Probe, given: Values, by: str, limit: float, frozen: Collection[str] = ()) -> Values:
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


def centralized(probe: Probe, given: Values, tagged: Collection[str], noise: Values | None = None) -> Values:
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
