"""The state of a verification while it runs: a line that changes on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

EVERY = 10.0
"""Seconds between lines where there is no terminal."""


class Progress:
    """Passes on what is checked; without ``tell`` nobody is told."""

    def __init__(self, tell: Callable[[str], None] = lambda _: None):
        self._tell, self._what = tell, ""

    def begin(self, what: str) -> None:
        """The next thing that is checked."""
        self._what = what
        self._tell(what)

    def detail(self, what: str) -> None:
        """The part of it that is checked now."""
        self._tell(f"{self._what}: {what}")


@contextmanager
def progress(command: str) -> Iterator[Progress]:
    """On stderr, for the time of the block."""
    from ..cli import console, escape

    if sys.stderr.isatty():
        with console(stderr=True).status("Compiling in MindSpore") as status:
            yield Progress(lambda what: status.update(f"Checking {escape(what)}"))
        return
    start = last = perf_counter()

    def tell(what: str) -> None:
        nonlocal last
        now = perf_counter()
        if now - last >= EVERY:
            last = now
            print(f"{command}: {now - start:.0f} s, checking {what}", file=sys.stderr, flush=True)

    yield Progress(tell)
