"""Sessions run in one thread at a time. MindSpore ends the process where two threads run graphs at once.

    if not enter(False):
        raise another_thread()
    try:
        …
    finally:
        leave()

A context manager would take longer than all of this, and each run of a graph needs it.
"""

from __future__ import annotations

from threading import RLock

from ...ir.core.errors import RuntimeFailure

_LOCK = RLock()

enter = _LOCK.acquire
leave = _LOCK.release


def is_inside() -> bool:
    """Whether this thread is in such a block: what MindSpore compiles now is boost-compile's own."""
    return bool(_LOCK._is_owned())  # type: ignore[attr-defined]


def another_thread() -> RuntimeFailure:
    """Threads are not kept waiting: their steps would come in no known order."""
    return RuntimeFailure(
        "another thread of this process is running a session. MindSpore runs graphs in one thread at a time: use "
        "sessions from one thread, or let threads take turns with a threading.Lock."
    )
