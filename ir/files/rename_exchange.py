"""Two names of a file system exchanged at once (Linux: ``renameat2`` with RENAME_EXCHANGE)."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # <fcntl.h>, <linux/fs.h>


def exchange(a: Path, b: Path) -> bool:
    """Whether the two names were exchanged; False, and nothing done, where system or file system cannot."""
    if sys.platform != "linux":
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # a C library from before 2018
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE) == 0)
