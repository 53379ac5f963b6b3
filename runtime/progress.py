"""The progress bar of `fit`: loss, samples a second and cycle, on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Tally:
    """How far a training is: micro-batches of all epochs (``total``: None if not known), samples since it started or
    was resumed, optimizer steps, and the loss of the last one."""

    micro_batches: int
    total: int | None
    samples: int
    cycles: int
    loss: float | None


class Bar(Protocol):
    def show(self, tally: Tally) -> None:
        """After each micro-batch, and after a flush."""


class NoBar:
    def show(self, tally: Tally) -> None:
        pass


class RichBar:
    def __init__(self, progress: Any):
        self.progress = progress
        self.task = progress.add_task("training", total=None, loss="–", speed="–", cycle=0)
        self.first: tuple[float, int] | None = None

    def show(self, tally: Tally) -> None:
        now = time.perf_counter()
        # Not from when the bar was made: the ranks of a job may still be starting then.
        started, samples = self.first = self.first or (now, tally.samples)
        speed = (tally.samples - samples) / max(now - started, 1e-9)
        self.progress.update(
            self.task,
            completed=tally.micro_batches,
            total=tally.total,
            loss="–" if tally.loss is None else f"{tally.loss:.4f}",
            speed=f"{speed:,.0f}",
            cycle=tally.cycles,
        )


@contextmanager
def progress_bar(shown: bool | Bar | None) -> Iterator[Bar]:
    """A bar on stderr, or the one that is given. None means only where stderr is a terminal."""
    from rich.console import Console

    if shown is not None and not isinstance(shown, bool):
        yield shown
        return
    console = Console(stderr=True)
    if not (console.is_terminal if shown is None else shown):
        yield NoBar()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}  {task.fields[speed]} samples/s  cycle {task.fields[cycle]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield RichBar(progress)
