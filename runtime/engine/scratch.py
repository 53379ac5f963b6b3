"""Folders for what MindSpore is to read; they go, whatever ends the process."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_open: set[str] = set()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is removed at the end of the block."""
    # Known before it is there: a signal may come right behind mkdir, where tempfile would leave it.
    folder = os.path.join(tempfile.gettempdir(), f"boost-compile-{secrets.token_hex(8)}")
    _open.add(folder)
    try:
        os.mkdir(folder, 0o700)
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _open.discard(folder)


def clear() -> None:
    """Removes all of them, for a process that ends within a block."""
    for folder in _open:
        shutil.rmtree(folder, ignore_errors=True)
