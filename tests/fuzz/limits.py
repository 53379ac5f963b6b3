"""What one input may cost: time, and memory beside what the process has already."""

from __future__ import annotations

import gc
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

SECONDS = 10.0
"""Of the processor, whatever else the machine does: far above what an input of some kilobytes takes."""
MEMORY = 128 << 20
"""What every input may take: caches, modules loaded late, stacks of threads."""
PER_BYTE = 200
"""Further bytes of memory for each byte of a file: a node of the IR takes that much."""


class Hang(BaseException):
    """The time is over. No Exception, so that nothing that is tried takes it for one of its own."""


class Greed(BaseException):
    """The memory is over."""


@contextmanager
def limited(size: int) -> Iterator[None]:
    """Runs the block with the limits for an input of ``size`` bytes. In the main thread, on Linux."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, _over)
    resource.setrlimit(resource.RLIMIT_AS, (_taken() + MEMORY + PER_BYTE * size, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    except MemoryError:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        raise Greed from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        if not gc.isenabled():
            gc.enable()


def _taken() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _over(_signal: int, _frame: Any) -> NoReturn:
    raise Hang
