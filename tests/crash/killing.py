"""A function in a process of its own that is killed: at its n-th operation on files, or after some time, or that may
write no file beyond a size."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

OPERATIONS = frozenset(
    {
        "open", "write", "writelines", "flush", "fsync", "close", "sendfile", "copyfile", "rename", "replace", "link",
        "mkdir", "unlink", "remove", "rmdir", "scandir", "lstat", "chmod", "flock", "save_file", "serialize_file",
    }
)  # fmt: skip
"""Builtin functions and methods that touch files, as the profiler of the interpreter names them."""
DONE, FAILED, RAISED = 0, 3, 4
"""Exit codes of the process: the function returned; it raised an Error; it raised something else."""


@dataclass(frozen=True)
class Limit:
    """What the process meets: ``operation``: killed before (``after``: after) its n-th operation, from 1; ``seconds``:
    killed then; ``size``: bytes that a file may have."""

    operation: int | None = None
    after: bool = False
    seconds: float | None = None
    size: int | None = None


def run(function: Callable[[], None], limit: Limit = Limit()) -> int:
    """Minus the signal that ended the process, or its exit code."""
    pid = os.fork()
    if pid == 0:
        _child(function, limit)
    if limit.seconds is not None:
        time.sleep(limit.seconds)
        os.kill(pid, signal.SIGKILL)  # a process that has ended stays one until it is waited for
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def count(function: Callable[[], None]) -> int:
    """How many operations on files the function has."""
    reading, writing = os.pipe()

    def counted() -> None:
        seen = _watch(None, False)
        function()
        sys.setprofile(None)
        os.write(writing, str(seen[0]).encode())

    code = run(counted)
    os.close(writing)
    with open(reading, "rb") as file:
        text = file.read()
    assert code == DONE, f"the function itself fails ({code})"
    return int(text)


def _child(function: Callable[[], None], limit: Limit) -> None:
    code = RAISED
    try:
        from boost_compile.ir.core.errors import Error

        if limit.size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit.size, limit.size))
        if limit.operation is not None:
            _watch(limit.operation, limit.after)
        try:
            function()
            code = DONE
        except Error:
            code = FAILED
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _watch(fatal: int | None, after: bool) -> list[int]:
    """Counts operations from now on; the ``fatal``-th kills the process."""
    seen = [0]
    wanted = "c_return" if after else "c_call"

    def profile(_frame: FrameType, event: str, function: Any) -> None:
        if event == wanted and getattr(function, "__name__", "") in OPERATIONS:
            seen[0] += 1
            if seen[0] == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(profile)
    return seen
