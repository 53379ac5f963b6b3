"""Ctrl-C and SIGTERM at any moment of a command: one line, the terminal as it was, an exit code.

Python turns a ctrl-C into an exception, wherever the program stands. MindSpore does not survive one: raised while it
is imported, or while its C++ code calls Python, it ends in tracebacks or aborts the process. So a signal that arrives
there ends the process at once, after what :data:`last_words` holds; anywhere else it is an exception as usual.

Imports nothing that takes time: signals may come while the command itself is still being imported.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_CODE = 130
"""The exit code of a command that was interrupted and left nothing that can be resumed."""

RESUMABLE = 75
"""The exit code of a training that was stopped and can be resumed (EX_TEMPFAIL of <sysexits.h>: try again later)."""

Outcome = Callable[[], tuple[int, str]]
"""The exit code, and what to say."""

last_words: list[Callable[[], None]] = []
"""Clean-ups before the process ends, the last first. Errors in them are no matter."""


class _State:
    name = ""
    outcome: Outcome = staticmethod(lambda: (EXIT_CODE, "interrupted"))
    held = False


def is_command(name: str) -> bool:
    """Whether this process was started as that command."""
    return os.path.basename(sys.argv[0]).partition(".")[0].removesuffix("-script") == name


def listen(name: str) -> None:
    """From now on signals end this process, the command ``name``, as this module says."""
    _State.name = name
    for number in SIGNALS:
        signal.signal(number, _handle)


def listening() -> bool:
    return bool(_State.name)


def ends_with(outcome: Outcome) -> None:
    """Says what an interrupted command is to say from now on."""
    _State.outcome = outcome


def finish() -> None:
    """The command has done its work: what comes now is too late to change anything."""
    if listening():
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def held() -> Iterator[None]:
    """For the end of the work, which must be completed once it has begun: the first signal comes too late, the second
    does not."""
    _State.held = True
    try:
        yield
    finally:
        _State.held = False


def leave() -> NoReturn:
    """Ends the process as an interrupted one."""
    finish()
    scratch = sys.modules.get("boost_compile.runtime.engine.scratch")
    for act in (*reversed(last_words), *([scratch.clear] if scratch is not None else [])):
        with suppress(Exception):
            act()
    code, message = _State.outcome()
    with suppress(OSError):
        sys.stdout.flush()
    end = "\x1b[?25h\r\n" if sys.stderr.isatty() else ""  # a bar may have hidden the cursor
    with suppress(OSError):
        sys.stderr.write(f"{end}{_State.name}: error: {message}\n")
        sys.stderr.flush()
    os._exit(code)


def _handle(_number: int, frame: FrameType | None) -> None:
    if _State.held:
        _State.held = False
        return
    if _is_fragile(frame):
        leave()
    raise KeyboardInterrupt


def _is_fragile(frame: FrameType | None) -> bool:
    """Whether an exception raised here would come through MindSpore, or through an import."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(("importlib.", "_frozen_importlib")) or module.partition(".")[0] == "mindspore":
            return True
        frame = frame.f_back
    return False
