"""The display of boost-run while it trains: a bar on a terminal, elsewhere lines, so that a log grows."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...runtime.training.bar import Bar, Tally, epoch_line
from ...runtime.training.progress import progress_bar
from ...runtime.training.stop import Stopped
from .. import cli, interruption

if TYPE_CHECKING:
    from ...runtime.training.history import Epoch

HEARTBEAT = 60.0
"""Seconds after which a running epoch says how far it is."""


class Lines:
    """One line on stderr for each epoch; within a long one, one a minute; and one where a training ends early."""

    def __init__(self) -> None:
        self._last: Tally | None = None
        self._said = time.monotonic()
        self._open = False

    def show(self, tally: Tally) -> None:
        self._last, self._open = tally, True
        if time.monotonic() - self._said > HEARTBEAT:
            self._say(_so_far(tally))

    def epoch(self, epoch: Epoch, epochs: int) -> None:
        self._open = False
        self._say(epoch_line(epoch, epochs))

    def close(self) -> None:
        """Says how far the epoch is that has not come to its end."""
        if self._open and self._last is not None:
            self._open = False
            self._say(_so_far(self._last))

    def _say(self, line: str) -> None:
        self._said = time.monotonic()
        sys.stderr.write(cli.harmless(line) + "\n")
        sys.stderr.flush()


def _so_far(tally: Tally) -> str:
    loss = "" if tally.loss is None else f"  loss {tally.loss:.6g} in the last step"
    done = f"{tally.micro_batches:,}" + (f" of {tally.total:,}" if tally.total is not None else "")
    return f"epoch {tally.epoch}/{tally.epochs}  after micro-batch {done}{loss}"


@contextmanager
def shown(wanted: bool) -> Iterator[Bar]:
    """Shows a training within the block, also where a signal ends it."""
    if not wanted or sys.stderr.isatty():
        with progress_bar(wanted) as bar:
            yield bar
        return
    lines = Lines()
    interruption.last_words.append(lines.close)
    try:
        yield lines
    except (Stopped, KeyboardInterrupt):
        lines.close()
        raise
    finally:
        interruption.last_words.remove(lines.close)
