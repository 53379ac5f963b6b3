"""Which variant of its graphs each cycle of a program runs: a sequence that a few numbers describe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from .errors import VerifyError
from .wording import counted

CONTINUOUS, INTERVAL, LISTED = "continuous", "interval", "listed"
KINDS = (CONTINUOUS, INTERVAL, LISTED)
LONGEST = 10_000_000
"""Cycles of a sequence, which is held in memory."""
SEEDS = 2**32
"""How many seeds numpy's generator takes."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Variant 0 are the graphs of the schedule, variant k those named ``GRAPH.k``, of ``variants`` in all.

    ``kind`` continuous: a run of cycles with variant 0, then one with each of the others, from the start again.
    ``kind`` interval: variant 0 alternates with one of the others, the lower the likelier. ``probability`` is the share
    of variant 0, ``cycles`` the length of the sequence, ``seed`` makes the random choices. These sequences are those of
    ``mindspore.boost.GradientFreeze``. ``kind`` listed: the variants of ``sequence``, ``cycles`` of them.

    After the sequence only variant 0 runs, or with ``repeat`` it begins again. ``state`` counts the cycles.
    """

    variants: int
    kind: str
    probability: float
    cycles: int
    seed: int
    state: str
    sequence: tuple[int, ...] = ()
    repeat: bool = False

    def __post_init__(self) -> None:
        cycles = 0 < self.cycles <= LONGEST
        if not (self.variants > 0 and 0 <= self.probability < 1 and cycles and 0 <= self.seed < SEEDS):
            raise VerifyError(
                f"a choice of {counted(self.variants, 'variant')} with probability {self.probability:g} over "
                f"{counted(self.cycles, 'cycle')} and seed {self.seed}: it takes 1 variant or more, a probability "
                f"below 1, 1 to {LONGEST} cycles and a seed below {SEEDS}"
            )
        listed = self.kind == LISTED
        if listed != bool(self.sequence) or (listed and self.cycles != len(self.sequence)):
            raise VerifyError(
                f"a choice of kind {self.kind} over {counted(self.cycles, 'cycle')} lists {len(self.sequence)} of them"
            )
        wrong = next((k for k in self.sequence if not 0 <= k < self.variants), None)
        if wrong is not None:
            raise VerifyError(f"a choice of {counted(self.variants, 'variant')} lists variant {wrong}")

    def of_cycle(self, number: int) -> int:
        """The variant that cycle ``number``, from 0, runs."""
        sequence = self.whole()
        if self.repeat:
            return sequence[number % len(sequence)]
        return sequence[number] if number < len(sequence) else 0

    def whole(self) -> tuple[int, ...]:
        """The variant of each cycle of the sequence."""
        return _sequence(self)

    def __str__(self) -> str:
        again = ", again and again" if self.repeat else ""
        if self.kind == LISTED:
            shown = ", ".join(map(str, self.sequence[:12])) + (", …" if len(self.sequence) > 12 else "")
            return f"one of {counted(self.variants, 'variant')}: {shown}{again}"
        return (
            f"one of {counted(self.variants, 'variant')}: {self.kind}, {self.probability:g} of the cycles run "
            f"variant 0, over {counted(self.cycles, 'cycle')}{again}"
        )


@lru_cache(maxsize=8)
def _sequence(choice: Choice) -> tuple[int, ...]:
    if choice.kind == LISTED:
        return choice.sequence
    others = list(range(1, choice.variants))
    if not others:
        return (0,) * choice.cycles
    if choice.kind == CONTINUOUS:
        zeros = int(choice.probability * len(others) // (1 - choice.probability) + 0.5)
        period = [0] * zeros + others
        if choice.repeat:  # upstream's sequence ends with a whole period, so that the next one begins where it should
            return tuple(period)
        return tuple((period * (choice.cycles // len(period) + 1))[: choice.cycles])
    import numpy as np

    # The generator that upstream draws from, so that the same seed gives the same sequence.
    random = np.random.RandomState(choice.seed)
    weights = [x / sum(others) for x in others]
    sequence, frozen = [0], 0
    while len(sequence) < choice.cycles:
        if frozen / len(sequence) < 1 - choice.probability:
            sequence.append(int(random.choice(others[::-1], p=weights)))
            frozen += 1
        else:
            sequence.append(0)
    return tuple(sequence)
