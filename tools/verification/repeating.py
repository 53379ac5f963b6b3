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

from .reference import Batch, Reference
from .report import VACUOUS, Result
from .tolerance import deviation, equal, result_off

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
    for name, value in first.outputs.items():
        if not equal(np.asarray(value), np.asarray(again.outputs[name])):
            far = result_off(name, again.outputs[name], value, reference.probe.unit)
            yield Unsteady(f"{name} is {_shown(value)}, and then {_shown(again.outputs[name])}", far.excess)
    for slot in reference.probe.gradients:
        one, two = first.gradients[slot.name], again.gradients[slot.name]
        if not equal(one, two):
            near = one + np.abs(reference.noise(state, batch)[slot.name])
            far = deviation(slot.name, two, one, np.zeros_like(one), [near])
            yield Unsteady(
                f"the gradient of '{slot.weights[0]}' is off by {far.relative:.2g} of its largest", far.excess
            )
    updated = [reference.update(state, batch, first.gradients) for _ in range(2)]
    left = [
        {**{n: after[n] for n in reference.trained}, **m.written}
        for after, m in zip(updated, (first, again), strict=True)
    ]
    for name, one in left[0].items():
        if not equal(one, left[1][name]):
            far = deviation(name, left[1][name], one, state[name])
            yield Unsteady(f"'{name}' is off by {far.relative:.2g} of its move", far.excess)


def _shown(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, float) else "other values"
