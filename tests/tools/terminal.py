"""Runs a command as one does who sits at a terminal: in a process of its own, on a pseudo-terminal."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import PATIENCE

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Screen:
    """``shown``: all that came on the terminal, stdout and stderr, with its colours."""

    code: int
    shown: str

    @property
    def text(self) -> str:
        return _COLOUR.sub("", self.shown)

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")


def on_terminal(command: str, *arguments: object, width: int = 80, folder: Path | None = None) -> Screen:
    """The screen, ``width`` columns wide, after ``boost-<command>`` has ended."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", f"boost_compile.tools.{command}", *map(str, arguments)],
        stdin=inner, stdout=inner, stderr=inner, cwd=folder, env={**environment, "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(inner)
    taken = bytearray()
    try:
        while piece := os.read(outer, 65536):
            taken += piece
    except OSError as end:  # how Linux says that nobody holds the terminal any more
        if end.errno != errno.EIO:
            raise
    finally:
        os.close(outer)
    return Screen(process.wait(PATIENCE), taken.decode().replace("\r\n", "\n"))
