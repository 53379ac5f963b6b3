"""How a training shows where it is: a bar on a terminal, nothing, or whatever else takes its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .bar import Bar, Speed, Tally, epoch_line
from .notebook import NotebookBar, in_notebook

_WIDE = 100
"""Columns of a terminal from which on the bar says the cycle too."""

if TYPE_CHECKING:
    from .history import Epoch


class NoBar:
    def show(self, tally: Tally) -> None:
        pass

    def epoch(self, epoch: Epoch, epochs: int) -> None:
        pass


class RichBar:
    def __init__(self, progress: Any):
        self.progress = progress
        self.task = progress.add_task("training", total=None, loss="–", speed="–", cycle=0, epoch="")
        self.speed = Speed()

    def show(self, tally: Tally) -> None:
        self.progress.update(
            self.task,
            completed=tally.micro_batches,
            total=tally.total,
            loss="–" if tally.loss is None else f"{tally.loss:.4g}",
            speed=f"{self.speed.of(tally):,.0f}",
            cycle=tally.cycles,
            epoch=f"epoch {tally.epoch}/{tally.epochs}",
        )

    def epoch(self, epoch: Epoch, epochs: int) -> None:
        self.progress.console.print(epoch_line(epoch, epochs), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(shown: bool | Bar | None) -> Iterator[Bar]:
    """A bar on stderr, in a notebook in the output of its cell, or the one that is given. None means only where stderr
    is a terminal, and in a notebook."""
    if shown is not None and not isinstance(shown, bool):
        yield shown
        return
    if shown is not False and in_notebook():
        notebook = NotebookBar()
        try:
            yield notebook
        finally:
            notebook.end()
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not (console.is_terminal if shown is None else shown):
        yield NoBar()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    # Where it is narrow the bar gives way, never a number: rich cuts off what may wrap.
    cycle = "  window {task.fields[cycle]}" if console.width >= _WIDE else ""
    columns = (
        TextColumn("{task.fields[epoch]}"),
        BarColumn(),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn(f"micro-batches  loss {{task.fields[loss]}}  {{task.fields[speed]}} samples/s{cycle}"),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=console) as progress:
        yield RichBar(progress)
