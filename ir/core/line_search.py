"""A line search at the end of every cycle: graphs that run again until a state says that it is over."""

from __future__ import annotations

from dataclasses import dataclass

from .wording import counted


@dataclass(frozen=True, slots=True)
class Search:
    """The trials after the update graph of each cycle, while the state ``pending``, one number, is not zero.

    One trial is a run of graph ``trial`` for each micro-batch of the cycle, with the same inputs, and one of ``judge``,
    which has none; ``judge`` clears ``pending`` after ``at_most`` trials at the latest. ``kept`` names outputs of the
    graphs that consume micro-batches (what they drew at random) that ``trial`` takes after the inputs; they are no
    results of a step.
    """

    trial: str
    judge: str
    pending: str
    at_most: int
    kept: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"then at most {counted(self.at_most, 'trial')} of {self.trial} on the cycle's micro-batches, "
            f"{self.judge} each"
        )
