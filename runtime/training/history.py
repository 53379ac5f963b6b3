"""The history of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...ir.core.wording import counted


@dataclass(frozen=True, slots=True)
class Cycle:
    """One optimizer step.

    ``number`` counts from 1, and goes on from the last one where training was resumed. ``loss`` is the mean over the
    micro-batches that this fit ran (NaN if it ran none of them, or the program returns no loss). ``micro_batches``
    counts all micro-batches of the cycle. ``flushed`` says that it ended with fewer than a whole cycle has.
    ``samples`` are those that this fit took, on this rank. ``loss_scales``: the scale of the loss, or one for each
    group of layers; empty where there is none.
    """

    number: int
    loss: float
    micro_batches: int
    updated: bool
    overflow: bool | None
    flushed: bool = False
    samples: int = 0
    loss_scales: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over the data.

    ``number`` counts from 1. ``loss`` is the mean over its micro-batches (of this rank, in this fit; NaN if it ran none
    of them, or the program returns no loss). ``dropped`` counts the samples at its end that were left out, on all
    ranks: they did not fill a micro-batch or, with ``end_of_epoch="drop"``, a cycle. ``seconds`` is training alone,
    without ``evaluation``. ``steps`` counts the optimizer steps that ended in it, ``skipped`` those of them without an
    update. ``rates`` are the learning rates of the last one, the smallest first (empty where the state does not say).
    """

    number: int
    loss: float
    micro_batches: int
    samples: int
    dropped: int
    seconds: float
    evaluation: Any = None
    steps: int = 0
    skipped: int = 0
    rates: tuple[float, ...] = ()


_SHOWN = 6
"""How many epochs ``repr`` names."""


@dataclass(slots=True, repr=False)
class History:
    """The record of a training: its optimizer steps and its epochs, in order. ``returns_loss`` says whether the program
    returns a loss; without one all losses here are NaN.
    """

    cycles: list[Cycle] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    returns_loss: bool = True

    def __repr__(self) -> str:
        if not self.cycles:
            return "History of no window"
        skipped = sum(not cycle.updated for cycle in self.cycles)
        losses = f"loss {self.losses[0]:.4g} at first, {self.losses[-1]:.4g} at last"
        losses = losses if self.returns_loss else "no loss is returned"
        note = f", {skipped} without an update" if skipped else ""
        lines = [f"History of {counted(len(self.cycles), 'window')}{note}: {losses}"]
        shown = self.epochs if len(self.epochs) <= _SHOWN else [*self.epochs[:2], *self.epochs[2 - _SHOWN :]]
        for epoch in shown:
            judged = "" if epoch.evaluation is None else f", evaluation {str(epoch.evaluation)[:60]}"
            loss = f"mean loss {epoch.loss:.4g}" if self.returns_loss else "no loss"
            lines.append(f"epoch {epoch.number}: {loss}{judged}, {epoch.seconds:.1f} s")
        return "\n  ".join(lines)

    @property
    def flushed(self) -> int:
        """The number of micro-batches in the short last cycle, 0 if the training ended with a complete one."""
        return self.cycles[-1].micro_batches if self.cycles and self.cycles[-1].flushed else 0

    @property
    def short_cycles(self) -> list[Cycle]:
        """The cycles that were flushed: they had fewer micro-batches than a whole one."""
        return [cycle for cycle in self.cycles if cycle.flushed]

    @property
    def losses(self) -> list[float]:
        """The mean loss of each cycle."""
        return [cycle.loss for cycle in self.cycles]

    @property
    def dropped(self) -> int:
        """Samples left out at the ends of epochs, see :class:`Epoch`."""
        return sum(epoch.dropped for epoch in self.epochs)
