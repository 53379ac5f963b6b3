"""Does the original repeat itself? Asked only where a property failed.

Kernels may read memory that nobody wrote (the softmax of a row that is masked as a whole), or sum in the order in which
threads come. Then nothing tells whether a program is right that computes something else: so does the original.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any

import numpy as np

from .reference import Batch, Micro, Reference, Values
from .report import VACUOUS, Result
from .tolerance import deviation, equal

RUNS = 24
"""So many more runs, over all micro-batches in turn: of an nn.Transformer with a masked row, 15 of 30 differed."""


@dataclass(frozen=True)
class Unsteady:
    """What differs most between two runs of the original on the same state and micro-batch. ``excess``: above one, a
    program that is as far off would fail."""

    what: str
    excess: float


def beyond_doubt(result: Result, reference: Reference, batches: Sequence[Batch]) -> Result:
    """The failure itself, if the original repeats itself. Where it does so but for rounding, a failure stands that was
    measured against a tolerance, and one of bits that were to be equal does not."""
    found = unsteady(reference, batches)
    if found is None or (result.deviation is not None and found.excess <= 1):
        return result
    reason = (
        f"the original does not repeat itself: run again on the same state and micro-batch, {found.what}. So this says "
        "nothing about the program: give other --data, if it is the data (a mask that covers a whole row)"
    )
    return replace(result, status=VACUOUS, detail=reason, deviation=None)


def unsteady(reference: Reference, batches: Sequence[Batch]) -> Unsteady | None:
    """None where each run gives the same bits. The first difference that is too large is enough."""
    found: Unsteady | None = None
    for batch in islice(cycle(batches), RUNS):  # in turn: what one micro-batch left in memory the next one meets
        for each in _differences(reference, batch):
            if found is None or each.excess > found.excess:
                found = each
            if found.excess > 1:
                return found
    return found


def _differences(reference: Reference, batch: Batch) -> Iterator[Unsteady]:
    state = reference.initial
    first, again = reference.micro(state, batch), reference.anew(state, batch)
    yield from _outputs(first, again, reference.probe.unit)
    yield from _gradients(reference, batch, first, again)
    yield from _states(state, first.written, again.written)
    updated = [reference.update(state, batch, first.gradients) for _ in range(2)]
    yield from _states(state, *({n: after[n] for n in reference.trained} for after in updated))


def _outputs(first: Micro, again: Micro, unit: float) -> Iterator[Unsteady]:
    for name, value in first.outputs.items():
        one, two = np.asarray(value), np.asarray(again.outputs[name])
        if not equal(one, two):
            zero = np.zeros_like(one)
            moved = one + 8 * max(unit, 2.0**-23) * np.abs(one) if one.dtype.kind == "f" else one
            far = deviation(name, two, one, zero, [moved])
            yield Unsteady(f"{name} is {_shown(value)}, and then {_shown(again.outputs[name])}", far.excess)


def _gradients(reference: Reference, batch: Batch, first: Micro, again: Micro) -> Iterator[Unsteady]:
    differing = [s for s in reference.probe.gradients if not equal(first.gradients[s.name], again.gradients[s.name])]
    if not differing:
        return
    floor = reference.noise(reference.initial, batch)
    for slot in differing:
        one, two = first.gradients[slot.name], again.gradients[slot.name]
        far = deviation(slot.name, two, one, np.zeros_like(one), [one + np.abs(floor[slot.name])])
        yield Unsteady(f"the gradient of '{slot.weights[0]}' is off by {far.relative:.2g} of its largest", far.excess)


def _states(before: Values, first: Values, again: Values) -> Iterator[Unsteady]:
    for name, one in first.items():
        if not equal(one, again[name]):
            far = deviation(name, again[name], one, before[name])
            yield Unsteady(f"'{name}' is off by {far.relative:.2g} of its move", far.excess)


def _shown(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, float) else "other values"
