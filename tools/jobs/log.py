"""The output of a rank: the line that says what went wrong."""

from __future__ import annotations

import os
import re
from pathlib import Path

_PYTHON_ERROR = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")
_LOGGED_ERROR = re.compile(r"^\[(ERROR|CRITICAL)\]|\berror:|^Fatal")


def last_error(log: Path) -> str:
    """The last line of a log that says what went wrong; "" where none does."""
    lines = [line.strip() for line in end_of(log).splitlines()]
    for pattern in (_PYTHON_ERROR, _LOGGED_ERROR):
        for line in reversed(lines):
            if pattern.search(line):
                return line
    return ""


def end_of(log: Path, limit: int = 1 << 18) -> str:
    """The end of a log."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
