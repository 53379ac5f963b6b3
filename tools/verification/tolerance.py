"""How far two states may lie apart, element by element.

Two programs that do the same arithmetic in another order agree up to rounding, and what becomes of rounding depends on
the optimizer: Adam makes a full step of a gradient that is nothing but noise (a bias in front of a BatchNorm). So the
tolerance is measured. The original's own update is run again with every gradient moved by its *noise floor*, once up
and once down with random signs; how far that moves an element of the state is how far rounding may. To it come two
units in the last place of the stored value, and a few rounding units of its step.

The noise floor is measured too: weights and floating inputs are moved by one rounding unit, at random, and the largest
change of a gradient's elements says how much rounding there is in it; 32 times that, since arithmetic rounds at
every step. It is at least ``NOISE`` rounding units of the largest gradient of its layer, and at least what this
measure gives for the middle one of the network's gradients, by the largest of its layer. Elements whose gradient is
exactly zero in every micro-batch, with moved weights too (a token that does not occur), have no noise, unless the whole
gradient is noise (a shift in front of a BatchNorm), where a sum may come out as zero by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .report import EQUAL, EXACT, Deviation

State = Mapping[str, np.ndarray]

NOISE = 8.0
"""Rounding units of the largest gradient of a layer. On the test networks, what is zero in exact arithmetic comes out
below 1.3 units (1.5e-7 in float32), and nearly all that is not above 8."""
AMPLIFIED = 32.0
"""Arithmetic rounds at every step, weights and inputs once: on the test networks gradients of stacked BatchNorms, whose
kernels cancel large sums, came out up to 14 times as far apart as moving weights and inputs did."""
CAP = 2.0**-12
"""The largest noise floor, by the largest gradient of the layer: where moved weights change sides of ReLUs (the last
layers of a deep network on few samples), the measured distance is no rounding, and faults must not hide in it."""
SAFETY = 2.0
"""The two movements are measured with one pattern of signs; another one may move the sums of an optimizer further."""
ULPS = 2.0
"""Units in the last place of the stored value: storing rounds once, and the addition before it."""
STEP = 8.0
"""Rounding units of the update itself: an optimizer rounds some five times on the way from gradient to step, which
shows where the step is as large as what it is added to."""


@dataclass(frozen=True)
class Expected:
    """``state`` is what should come out of ``before``; ``measure`` runs what comes out with gradients that are off by
    their noise, where it is asked for."""

    before: State
    state: State
    measure: Callable[[], tuple[State, ...]]

    @cached_property
    def moved(self) -> tuple[State, ...]:
        return self.measure()


def floors(
    magnitudes: State,
    weights: Mapping[str, str],
    unit: float,
    changes: Sequence[State],
    vanishing: Mapping[str, float] | None = None,
) -> dict[str, np.ndarray]:
    """The noise floor of each element of each gradient. ``magnitudes`` are mean absolute gradients of micro-batches,
    ``weights`` names the weight of each, and with it the layer; ``unit`` is the rounding unit of the coarsest float
    type in the backward part. ``changes`` are absolute differences to gradients at moved weights; the least of them
    counts, since a ReLU that changes sides is no rounding. ``vanishing``: the least floor of each, zeros included."""
    layers = {name: weights[name].rpartition(".")[0] for name in magnitudes}
    largest: dict[str, float] = {}
    for name, magnitude in magnitudes.items():
        own = magnitude[np.isfinite(magnitude)].max(initial=0.0)
        largest[layers[name]] = max(largest.get(layers[name], 0.0), float(own))
    least: dict[str, float] = {}
    for name in magnitudes:
        measured = min((float(c[name].max(initial=0.0)) for c in changes), default=0.0)
        least[name] = measured if np.isfinite(measured) else 0.0
    shares = [least[n] / largest[layers[n]] for n in magnitudes if largest[layers[n]] > 0]
    base = max(NOISE * unit, AMPLIFIED * float(np.median(shares)) if shares else 0.0)
    found = {}
    for name, magnitude in magnitudes.items():
        most = max(CAP, NOISE * unit) * largest[layers[name]]
        floor = min(max(base * largest[layers[name]], AMPLIFIED * least[name]), most)
        alive = (
            (magnitude > 0) | np.any([c[name] != 0 for c in changes], axis=0) | (magnitude.max(initial=0.0) <= floor)
        )
        found[name] = np.maximum(np.where(alive, floor, 0.0), (vanishing or {}).get(name, 0.0))
    return found


def signs(shape: Sequence[int], drawn: np.random.Generator) -> np.ndarray:
    """Up or down for each element, at random, but never alike over all axes behind the first: centralization, which
    takes the mean over these away, would take the noise with it."""
    found: np.ndarray = drawn.choice([-1.0, 1.0], shape)
    if found.ndim > 1 and found.size:
        rows = found.reshape(len(found), -1)
        alike = np.abs(rows.sum(axis=1)) == rows.shape[1]
        rows[alike, 0] *= -1
    return found


def compare(ours: State, expected: Expected, names: Iterable[str]) -> Deviation:
    """The worst element over the named states. A state that training does not move must be equal in every bit. Where
    every state is, nothing is measured."""
    names = list(names)
    if all(equal(ours[name], expected.state[name]) for name in names):
        return EQUAL
    found = (
        deviation(name, ours[name], expected.state[name], expected.before[name], [m[name] for m in expected.moved])
        for name in names
    )
    return max((EXACT, *found), key=lambda d: (d.excess, d.error, d.tolerance_relative))


def deviation(
    name: str, ours: np.ndarray, reference: np.ndarray, before: np.ndarray, moved: Iterable[np.ndarray] = ()
) -> Deviation:
    """The worst element of one state."""
    if ours.shape != reference.shape or ours.dtype != reference.dtype:
        return Deviation(name, np.inf, np.inf, np.inf, 0.0, 0.0, np.inf)
    if reference.dtype.kind != "f":
        wrong = int(np.count_nonzero(ours != reference))
        return Deviation(name, wrong, wrong, wrong, 0.0, 0.0, np.inf) if wrong else EXACT
    a, b, start = (np.atleast_1d(x).astype(np.float64) for x in (ours, reference, before))
    with np.errstate(invalid="ignore", over="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        error = np.where(same, 0.0, np.abs(a - b))
        error[np.isnan(error)] = np.inf
        travel = np.abs(b - start)
        unit = spacing(reference, before)
        noise = np.zeros_like(b)
        for other in moved:
            difference = np.abs(np.atleast_1d(other).astype(np.float64) - b)
            noise = np.maximum(noise, np.where(np.isfinite(difference), difference, 0.0))
        rounding = ULPS * unit + STEP * float(np.finfo(reference.dtype).eps) * np.where(np.isfinite(travel), travel, 0)
        tolerance = SAFETY * noise + np.where((travel > 0) | (noise > 0), rounding, 0.0)
        excess = np.where(error == 0, 0.0, error / np.where(tolerance > 0, tolerance, np.nan))
    excess[np.isnan(excess)] = np.inf
    scale = float(travel[np.isfinite(travel)].max(initial=0.0)) or float("inf")
    if same.all():
        # Equal: shown is the tolerance of the middle element.
        relative, ulps = (float(np.median(x)) if x.size else 0.0 for x in (tolerance / scale, tolerance / unit))
        return Deviation("", 0.0, 0.0, 0.0, relative, ulps, 0.0)
    at = int(excess.argmax())
    e, t, u = (float(x.flat[at]) for x in (error, tolerance, unit))
    return Deviation(name, e, e / scale, e / u, t / scale, t / u, float(excess.flat[at]))


def result_off(name: str, ours: Any, theirs: Any, unit: float) -> Deviation:
    """How far a result is from what it should be: the same arithmetic, so eight rounding units, those of one large
    sum."""
    a, b = (np.asarray(x.astype(np.float32) if x.dtype.kind == "f" else x) for x in map(np.asarray, (ours, theirs)))
    near = b + 8 * max(unit, 2.0**-23) * np.abs(b) if b.dtype.kind == "f" else b
    return deviation(name, a, b, np.zeros_like(b), [near])


def spacing(*arrays: np.ndarray) -> np.ndarray:
    """One unit in the last place of the largest of each element."""
    largest = np.atleast_1d(np.max([np.abs(a) for a in arrays], axis=0))
    unit: Any = np.spacing(np.where(np.isfinite(largest), largest, 0).astype(arrays[0].dtype))
    return np.abs(unit).astype(np.float64)  # type: ignore[no-any-return]


def equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal in every bit, for what is compared without tolerance."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
