"""Processes that do not outlive the one that watches them (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # <sys/prctl.h>


def end_with_parent() -> None:
    """From now on the kernel kills this process when its parent ends, however that happens."""
    _libc().prctl(_SET_PDEATHSIG, signal.SIGKILL)


def end_with(watcher: int) -> None:
    """The same with process ``watcher``, which adopts this one as soon as its parent has ended. Waits for that."""
    while os.getppid() != watcher:
        if not _runs(watcher):
            os._exit(1)
        time.sleep(0.01)
    end_with_parent()
    if os.getppid() != watcher:  # it ended just before
        os._exit(1)


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextmanager
def adopting() -> Iterator[None]:
    """Within the block, what descendants leave behind becomes a child of this process, and not of init. At its end
    every descendant that came in the block is killed and waited for, ranks and whatever they started."""
    own = psutil.Process()
    before = {child.pid for child in own.children()}
    libc = _libc()
    libc.prctl(_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        with _deaf():
            # Killing one makes its children ours, so once is not enough.
            while family := [child for child in own.children() if child.pid not in before]:
                for process in family:
                    for each in (*_descendants(process), process):
                        with suppress(psutil.NoSuchProcess):
                            each.kill()
                for process in family:
                    with suppress(ChildProcessError):
                        os.waitpid(process.pid, 0)
            libc.prctl(_SET_CHILD_SUBREAPER, 0)


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return list(process.children(recursive=True))
    return []


@contextmanager
def _deaf() -> Iterator[None]:
    """A second ctrl-C must not interrupt the cleaning up after the first."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
