"""The progress of a training, and those who show it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

from ...ir.core.wording import counted
from .history import Epoch


@dataclass(frozen=True, slots=True)
class Tally:
    """How far a training is: micro-batches of all epochs (``total``: None if not known), samples since it started or
    was resumed, optimizer steps, the loss of the last one, and the running epoch, from 1."""

    micro_batches: int
    total: int | None
    samples: int
    cycles: int
    loss: float | None
    epoch: int = 1
    epochs: int = 1


class Speed:
    """Samples a second since the first tally: not since a bar was made, when the ranks of a job may still start."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def of(self, tally: Tally) -> float:
        now = time.perf_counter()
        started, samples = self._first = self._first or (now, tally.samples)
        return (tally.samples - samples) / max(now - started, 1e-9)


class Bar(Protocol):
    def show(self, tally: Tally) -> None:
        """After each micro-batch, and after a flush."""

    def epoch(self, epoch: Epoch, epochs: int) -> None:
        """After each of ``epochs`` epochs and its evaluation."""


def epoch_line(epoch: Epoch, epochs: int) -> str:
    """The facts of an epoch, in one line."""
    parts = [f"epoch {epoch.number}/{epochs}", f"loss {epoch.loss:.6g}"]
    if epoch.rates:
        parts.append("rate " + " to ".join(f"{rate:.4g}" for rate in (epoch.rates[0], *epoch.rates[1:][-1:])))
    if epoch.seconds > 0:
        parts.append(f"{epoch.samples / epoch.seconds:,.0f} samples/s")
    parts.append(counted(epoch.steps, "step") + (f", {epoch.skipped:,} skipped" if epoch.skipped else ""))
    if epoch.evaluation is not None:
        parts.append(shown(epoch.evaluation))
    return "  ".join(parts)


def shown(evaluation: Any) -> str:
    """The text of an evaluation's result; of numbers by name, six digits."""
    if isinstance(evaluation, dict):
        return ", ".join(f"{name} {shown(value)}" for name, value in evaluation.items())
    return f"{evaluation:.6g}" if isinstance(evaluation, float) else str(evaluation)
