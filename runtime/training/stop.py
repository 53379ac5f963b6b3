"""Leaving when asked to: SIGTERM and SIGINT are noted, and obeyed where the training can be saved.

Once a graph has run, MindSpore makes a SIGTERM of each SIGINT.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from ...ir.core.errors import Error

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Error):
    """Training was asked to end, and its state was saved."""


class StopRequest:
    """Notes the first signal; a second one goes to who listened before: usually KeyboardInterrupt for SIGINT, and
    SystemExit for SIGTERM."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def listen(self) -> None:
        """From now on, where this is the main thread; elsewhere Python cannot."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}

    def forget(self) -> None:
        """Puts back who listened before."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            return
        before = self._before.get(number)
        if callable(before):
            before(number, frame)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
