"""The state of a verification while it runs: a line that changes on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Protocol

EVERY = 10.0
"""Seconds between lines where there is no terminal."""


class Progress(Protocol):
    def begin(self, what: str) -> None:
        """The next thing that is checked."""

    def detail(self, what: str) -> None:
        """The part of it that is checked now."""


class Silent:
    def begin(self, what: str) -> None:
        pass

    def detail(self, what: str) -> None:
        pass


class _Told(ABC):
    """Passes on what is to be told of the thing that is checked."""

    what = ""

    def begin(self, what: str) -> None:
        self.what = what
        self._tell(what)

    def detail(self, what: str) -> None:
        self._tell(f"{self.what}: {what}")

    @abstractmethod
    def _tell(self, text: str) -> None: ...


class _Live(_Told):
    def __init__(self, status: Any):
        self._status = status

    def _tell(self, text: str) -> None:
        from ..cli import escape

        self._status.update(f"Checking {escape(text)}")


class _Lines(_Told):
    def __init__(self, command: str):
        self._command = command
        self._start = self._last = perf_counter()

    def _tell(self, text: str) -> None:
        now = perf_counter()
        if now - self._last >= EVERY:
            self._last = now
            print(f"{self._command}: {now - self._start:.0f} s, checking {text}", file=sys.stderr, flush=True)


@contextmanager
def progress(command: str) -> Iterator[Progress]:
    """On stderr, for the time of the block."""
    from ..cli import console

    if not sys.stderr.isatty():
        yield _Lines(command)
        return
    with console(stderr=True).status("Compiling in MindSpore") as status:
        yield _Live(status)
