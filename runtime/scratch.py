"""Folders for what MindSpore is to read; they go, whatever ends the process."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_open: set[str] = set()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="boost-compile-") as folder:
        _open.add(folder)
        try:
            yield Path(folder)
        finally:
            _open.discard(folder)


def clear() -> None:
    """Removes all of them, for a process that ends within a block."""
    for folder in _open:
        shutil.rmtree(folder, ignore_errors=True)
