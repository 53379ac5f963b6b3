"""How a thread waits for the graph that it called. Imports no MindSpore.

A thread of MindSpore's pool says that a graph has run while it holds a spin lock, and the caller takes this lock when
it wakes up. Where no core is free, Linux lets a thread that wakes up run at once, in the place of another. That one may
be the holder of the lock: then the caller spins until its slice of time is over, for a millisecond or more. A thread
under the policy for batches wakes up behind those that run. On two cores a step of a small GPT takes 1.9 ms so, and 3.2
without it.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType


class WakesLate:
    """While this context is open, the thread that opened it takes no running thread's place when it wakes up.

    Threads that are started meanwhile inherit that, so it is not for calls that may start MindSpore's pool. A thread
    with a policy that its user chose keeps it. It does nothing where there are no such policies, or where they are not
    to be changed.
    """

    __slots__ = ("_changed",)

    def __enter__(self) -> None:
        self._changed = False
        if sys.platform == "linux" and os.sched_getscheduler(0) == os.SCHED_OTHER:
            self._changed = _take(os.SCHED_BATCH)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if sys.platform == "linux" and self._changed:
            _take(os.SCHED_OTHER)


def _take(policy: int) -> bool:
    """Whether the calling thread has that policy now; a sandbox may refuse it."""
    if sys.platform == "linux":
        try:
            os.sched_setscheduler(0, policy, os.sched_param(0))
        except OSError:
            return False
        return True
    return False
