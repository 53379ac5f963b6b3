"""What is wrong in a training, by weight, as its monitors show it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import median

from ...ir.core.wording import agreed, counted
from .monitors import Readings

SPIKE, DEAD, NOT_FINITE, EXPLODING = "spike", "dead", "not finite", "exploding update"
TIMES = 10.0
"""A gradient this many times as long as its median so far, and as each of the last readings, is a spike. One that grows
bit by bit, as of adapters whose B begins at zero, is none."""
LARGEST = 1.0
"""An update may be as long as the weight itself."""
BEFORE, REMEMBERED = 3, 50
"""Readings that must be known before one is judged by them, and those that are."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``what`` is one of the words above; ``detail`` says it with numbers."""

    cycle: int
    weight: str
    what: str
    detail: str

    def __str__(self) -> str:
        return f"window {self.cycle}, {self.weight}: {self.detail}"


@dataclass(slots=True)
class Examiner:
    """Examines readings, cycle by cycle, in the light of those before. ``resting``: weights are left out of some cycles
    on purpose, so a gradient of zero says nothing. ``waiting``: weights whose gradient is zero until others have moved
    (matrix A of an adapter: its B begins at zero)."""

    resting: bool = False
    waiting: Collection[str] = ()
    _norms: dict[str, deque[float]] = field(default_factory=dict)
    _updates: dict[str, int] = field(default_factory=dict)

    def examine(self, readings: Readings) -> list[Finding]:
        """What is wrong in this cycle."""
        values = readings.values
        kinds = [kind for kind in values if kind.startswith("gradient-norm.")]
        found: dict[tuple[str, str], str] = {}
        # The weight itself before its gradient: where updates are skipped, it is where the others have it from.
        for kind in ["weight-norm", *kinds]:
            for weight, norm in values.get(kind, {}).items():
                if not math.isfinite(norm):
                    of = "the weight" if kind == "weight-norm" else f"its gradient ({kind.partition('.')[2]})"
                    found.setdefault((weight, NOT_FINITE), f"the norm of {of} is {norm}")
        for weight, number in values.get("non-finite", {}).items():
            if number:
                elements = f"{counted(int(number), 'element')} of its gradient {agreed(int(number), 'is', 'are')}"
                found.setdefault((weight, NOT_FINITE), f"{elements} infinite or NaN")
        for weight, norm in values.get(kinds[0], {}).items() if kinds else ():
            if norm == 0 and weight in self.waiting and weight not in self._norms:
                continue
            if norm == 0 and not self.resting:
                found[weight, DEAD] = "its gradient is zero: nothing that it computes reaches the loss"
            elif math.isfinite(norm) and (times := self._spike(weight, norm)):
                stage = kinds[0].partition(".")[2]
                found[weight, SPIKE] = f"its gradient ({stage}) is {norm:.3g} long, {times:.3g} times as usual"
        for weight, ratio in values.get("update-ratio", {}).items():
            if ratio > LARGEST and self._updates.get(weight, 0) >= BEFORE:
                found[weight, EXPLODING] = f"the update is {ratio:.3g} times as long as the weight was"
            self._updates[weight] = self._updates.get(weight, 0) + (ratio > 0)
        return [Finding(readings.cycle, weight, what, detail) for (weight, what), detail in found.items()]

    def _spike(self, weight: str, norm: float) -> float:
        """How many times as long as usual a gradient is; 0 where that is no spike."""
        known = self._norms.setdefault(weight, deque(maxlen=REMEMBERED))
        usual = median(known) if len(known) >= BEFORE else math.inf
        least = TIMES * max([usual, *[*known][-BEFORE:]])
        known.append(norm)
        return norm / usual if norm > least else 0.0
