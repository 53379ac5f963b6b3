"""The progress bar of `fit`: loss, samples a second and cycle, on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .fit import History


class Bar(Protocol):
    def advance(self, samples: int, history: History) -> None:
        """One micro-batch with that many samples was consumed (none: a cycle was flushed)."""


class NoBar:
    def advance(self, samples: int, history: History) -> None:
        pass


class RichBar:
    def __init__(self, progress: Any, total: int | None):
        self.progress = progress
        self.task = progress.add_task("training", total=total, loss="", speed="", cycle=0)
        self.started = time.perf_counter()
        self.samples = 0

    def advance(self, samples: int, history: History) -> None:
        self.samples += samples
        speed = self.samples / max(time.perf_counter() - self.started, 1e-9)
        loss = f"{history.cycles[-1].loss:.4f}" if history.cycles else "–"
        self.progress.update(
            self.task, advance=1 if samples else 0, loss=loss, speed=f"{speed:,.0f}", cycle=len(history.cycles)
        )


@contextmanager
def progress_bar(shown: bool | None, total: int | None) -> Iterator[Bar]:
    """A bar over ``total`` micro-batches (None: not known). ``shown`` None means only where stderr is a terminal."""
    from rich.console import Console

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
        yield RichBar(progress, total)
