"""How far two trained states lie apart, measured by how far training moved each parameter.

An absolute tolerance says nothing about training: a step of 1e-4 that went the wrong way would pass one of 1e-3. So the
error of a parameter is max|ours - reference| / max|reference - initial|. Two kinds of difference are rounding by nature
and are taken out explicitly, element by element, never by a wider tolerance:

- storing: one unit in the last place of the stored value; for a weight near 1 that moved by 1e-3, that is 1e-4;
- noise: elements whose exact gradient is zero (a bias in front of BatchNorm, the bias of attention keys). What is
  computed for them is rounding noise, and Adam scales it up to a full step. `noise_mask` finds them by the size of the
  reference's gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

State = Mapping[str, np.ndarray]

NOISE = 1e-6
"""Gradients below this part of the largest gradient of their layer are noise. Measured on the zoo: what is zero in
exact arithmetic comes out below 1.5e-7, and between that and 1e-6 lie about one in a thousand of the others."""


@dataclass(frozen=True)
class Row:
    """One parameter: the largest difference and the largest move of its elements that are not noise.

    `error` is the largest difference beyond storing, by `moved`.
    """

    name: str
    size: int
    noise: int
    equal: bool
    difference: float
    moved: float
    error: float


@dataclass(frozen=True)
class Comparison:
    """The rows, worst first."""

    rows: tuple[Row, ...]

    @property
    def worst(self) -> Row:
        return self.rows[0]

    @property
    def bit_equal(self) -> int:
        """How many parameters agree in every bit, noise included."""
        return sum(row.equal for row in self.rows)

    def __str__(self) -> str:
        head = f"{self.bit_equal} of {len(self.rows)} parameters bit-equal\n"
        line = "{:48} {:>10} {:>10} {:>10} {:>9} {:>6}\n"
        table = line.format("parameter", "error", "difference", "moved", "size", "noise")
        for row in self.rows[:20]:
            figures = (f"{row.error:.2e}", f"{row.difference:.2e}", f"{row.moved:.2e}")
            table += line.format(row.name, *figures, row.size, row.noise)
        return head + table


def compare(ours: State, reference: State, initial: State, noise: State | None = None, ulps: float = 1.0) -> Comparison:
    """Compares by name. A state that is missing, extra, of another shape or dtype raises AssertionError.

    `noise` holds a mask by weight (see `noise_mask`), which also serves the weight's slots. `ulps` units in the last
    place are forgiven for storing, on elements that moved; 0 measures the plain difference. A parameter that the
    reference left where it was must be left there.
    """
    if ours.keys() != reference.keys():
        missing, extra = sorted(reference.keys() - ours.keys()), sorted(ours.keys() - reference.keys())
        raise AssertionError(f"the states differ in their names: missing {missing}, extra {extra}")
    masks = noise or {}
    rows = [
        _row(name, ours[name], reference[name], initial[name], _mask(name, reference[name], masks), ulps)
        for name in reference
    ]
    _check_noise(ours, reference, initial, masks)
    return Comparison(tuple(sorted(rows, key=lambda row: (-row.error, row.equal, row.name))))


def assert_close(
    ours: State, reference: State, initial: State, tolerance: float, noise: State | None = None, ulps: float = 1.0
) -> Comparison:
    """`compare`, and AssertionError with the table if any parameter's error exceeds `tolerance`."""
    result = compare(ours, reference, initial, noise, ulps)
    if not result.worst.error <= tolerance:
        raise AssertionError(f"{result.worst.name} is off by {result.worst.error:.2e}, more than {tolerance}\n{result}")
    return result


def assert_equal(ours: State, reference: State) -> None:
    """Every parameter equal in every bit."""
    result = compare(ours, reference, reference, ulps=0.0)
    if result.bit_equal != len(result.rows):
        raise AssertionError(f"{result.worst.name} differs\n{result}")


def noise_mask(gradients: Sequence[State], magnitudes: State, threshold: float = NOISE) -> dict[str, np.ndarray]:
    """By weight: True where some cycle's reduced gradient is noise, judged by the largest gradient of the same layer.

    `gradients` holds the reduced gradients of each cycle, `magnitudes` the sum of absolute micro-batch gradients of
    the run. An element whose gradient was exactly zero in every micro-batch (an unused token, a dead unit) is no noise:
    it is compared like any other.
    """
    scale: dict[str, float] = {}
    for cycle in gradients:
        for name, gradient in cycle.items():
            layer = name.rpartition(".")[0]
            scale[layer] = max(scale.get(layer, 0.0), float(np.max(np.abs(gradient), initial=0)))
    masks = {}
    for name, magnitude in magnitudes.items():
        small = np.zeros(magnitude.shape, bool)
        for cycle in gradients:
            small |= np.abs(cycle[name]) <= threshold * scale[name.rpartition(".")[0]]
        masks[name] = small & (magnitude > 0)
    return masks


def _owner(name: str, masks: State) -> str | None:
    """The weight that a state is, or is a slot of: `moment1.fc.bias` belongs to `fc.bias`."""
    start = 0
    while True:
        if name[start:] in masks:
            return name[start:]
        dot = name.find(".", start)
        if dot < 0:
            return None
        start = dot + 1


def _mask(name: str, value: np.ndarray, masks: State) -> np.ndarray:
    owner = _owner(name, masks)
    if owner is None or masks[owner].shape != value.shape:
        return np.zeros(value.shape, bool)
    return masks[owner]


def _row(name: str, ours: np.ndarray, reference: np.ndarray, initial: np.ndarray, mask: np.ndarray, ulps: float) -> Row:
    if (ours.shape, ours.dtype) != (reference.shape, reference.dtype):
        raise AssertionError(f"{name} is {ours.dtype}{ours.shape}, the reference {reference.dtype}{reference.shape}")
    equal = np.array_equal(ours, reference, equal_nan=reference.dtype.kind == "f")
    a, b, start = (array.astype(np.float64)[~mask] for array in (ours, reference, initial))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(a - b))
        travel = np.abs(b - start)
    # A value that is not finite on one side only is infinitely wrong, and says nothing about how far the others moved.
    difference[np.isnan(difference)] = np.inf
    moved = float(travel[np.isfinite(travel)].max(initial=0.0))
    if ulps and reference.dtype.kind == "f":
        largest = np.maximum(np.abs(b), np.abs(start)).astype(reference.dtype)
        unit = np.spacing(np.where(np.isfinite(largest), largest, 0)).astype(np.float64)
        beyond = difference[(difference > ulps * unit) | (travel == 0)]
    else:
        beyond = difference
    worst = float(beyond.max(initial=0.0))
    if worst == 0.0:
        error = 0.0
    elif moved == 0.0 or not np.isfinite(worst):
        error = float("inf")
    else:
        error = worst / moved
    return Row(name, reference.size, int(mask.sum()), equal, float(difference.max(initial=0.0)), moved, error)


def _check_noise(ours: State, reference: State, initial: State, masks: State) -> None:
    """Noise may have any sign and size but not grow beyond the steps of training: it stays within twice the largest
    move of any state of its kind (all weights, all first moments, ...)."""
    moves: dict[str, float] = {}
    masked: list[tuple[str, str, float]] = []
    for name, value in reference.items():
        owner = _owner(name, masks)
        if owner is None:
            continue
        kind = name[: len(name) - len(owner)]
        moves[kind] = max(moves.get(kind, 0.0), float(np.abs(value - initial[name]).max(initial=0)))
        mask = _mask(name, value, masks)
        masked.append((name, kind, float(np.abs(ours[name] - initial[name])[mask].max(initial=0))))
    for name, kind, move in masked:
        if not move <= 2 * moves[kind]:
            raise AssertionError(
                f"{name}: an element with no gradient moved by {move:.2e}, the others by at most {moves[kind]:.2e}"
            )
