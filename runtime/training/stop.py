"""Leaving when asked to: SIGTERM and SIGINT are noted, and obeyed where the training can be saved, or can go on.

Once a graph has run, MindSpore makes a SIGTERM of each SIGINT, and nothing tells it from another one.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


class Interruption(StopRequest):
    """Notes that `fit` is to end. A second signal is a KeyboardInterrupt wherever Python stands, and ends the process
    before Python noticed the first one (a kernel that hangs)."""

    def listen(self) -> None:
        """Only where SIGTERM would end the process: whoever listens to it decides what becomes of a ctrl-C."""
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            super().listen()
            self._arm()

    def obey(self, where: str) -> None:
        """KeyboardInterrupt if a signal came; ``where`` says how far the training is."""
        if self.received is not None:
            raise KeyboardInterrupt(f"fit was interrupted {where}; fit(…, resume=True) goes on there")

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number
        for each in self._before:
            signal.signal(each, self._note)
        self._arm()

    def _arm(self) -> None:
        for number in self._before:
            _listen_once(number)


@contextmanager
def interruptible(alone: bool) -> Iterator[Interruption]:
    """For the time of a training. One that is not ``alone`` has ranks that would wait for this one in vain: there a
    signal ends the process, as it does without this."""
    stop = Interruption()
    if alone:
        stop.listen()
    try:
        yield stop
    finally:
        stop.forget()
    stop.obey("at its end")


def _listen_once(number: int) -> None:
    """Python's handler only sets a flag, which nobody looks at while MindSpore computes. So the system is told to take
    the handler away when it runs: then the next signal ends the process."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "sysv_signal"):  # of glibc
        action = (ctypes.c_void_p * 64)()  # a struct sigaction, which begins with the handler
        libc.sigaction(number, None, action)
        libc.sysv_signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.sysv_signal(number, action[0])
