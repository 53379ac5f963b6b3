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


def end_of(log: Path) -> str:
    """The last quarter of a megabyte of a log; "" where there is none."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - (1 << 18)))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
