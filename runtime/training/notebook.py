"""How `fit` shows its progress in a notebook: one output that is written anew, without widgets."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import TYPE_CHECKING, Any

from ...ir.core.wording import counted
from .bar import Speed, Tally, epoch_line

if TYPE_CHECKING:
    from .history import Epoch

_SECONDS = 0.2
"""Between two pictures of a bar: each is a message to the browser."""
_LINES = 20
"""Epochs whose lines stay in sight; those before them are counted."""


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel. Loads nothing."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


class NotebookBar:
    """A bar with the running loss, and a line for each epoch, in the output of the notebook's cell."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tally: Tally | None = None
        self.samples_a_second = 0.0
        self.speed = Speed()
        self.shown_at = 0.0
        self.handle: Any = None

    def show(self, tally: Tally) -> None:
        now = time.perf_counter()
        self.tally, self.samples_a_second = tally, self.speed.of(tally)
        if now - self.shown_at >= _SECONDS:
            self.shown_at = now
            self._draw()

    def epoch(self, epoch: Epoch, epochs: int) -> None:
        self.lines.append(epoch_line(epoch, epochs))
        self._draw()

    def end(self) -> None:
        """The last picture, which stays in the notebook."""
        self._draw()

    def _draw(self) -> None:
        from IPython.display import display

        formats = {"text/plain": "\n".join([*self._recent(), self._status()]), "text/html": self._html()}
        if self.handle is None:
            self.handle = display(formats, raw=True, display_id=True)
        else:
            self.handle.update(formats, raw=True)

    def _recent(self) -> list[str]:
        hidden = len(self.lines) - _LINES
        return [f"… {counted(hidden, 'epoch')} before these", *self.lines[hidden:]] if hidden > 0 else self.lines

    def _status(self) -> str:
        tally = self.tally
        if tally is None:
            return ""
        of = "" if tally.total is None else f"/{tally.total}"
        loss = "–" if tally.loss is None else f"{tally.loss:.4f}"
        return (
            f"epoch {tally.epoch}/{tally.epochs}  micro-batch {tally.micro_batches}{of}  loss {loss}  "
            f"{self.samples_a_second:,.0f} samples/s  window {tally.cycles}"
        )

    def _html(self) -> str:
        tally = self.tally
        lines = "".join(f"<div>{escape(line)}</div>" for line in self._recent())
        bar = ""
        if tally is not None and tally.total:
            bar = f'<progress value="{tally.micro_batches}" max="{tally.total}" style="width:12em"></progress> '
        last = f"<div>{bar}{escape(self._status())}</div>"
        return f'<div style="font-family:monospace;white-space:pre-wrap">{lines}{last}</div>'
