"""The file that a program comes from: opened and mapped, and its digest."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ...core.data import MappedFile
from ...core.errors import FormatError
from .sniff import EXPORT_HINT


def map_file(path: str | os.PathLike[str]) -> MappedFile:
    """The mapped file; FormatError unless it is a non-empty regular file that may be a MindIR."""
    path = Path(path)
    try:
        if not path.exists():
            raise FormatError(f"{path}: no such file")
        if not path.is_file():
            raise FormatError(f"{path}: not a regular file; give the .mindir file itself")
        file = MappedFile(path)
        view = file.view()
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(view) == 0:
        raise FormatError(f"{path}: the file is empty; {EXPORT_HINT}")
    return file


@contextmanager
def hashing(file: MappedFile) -> Iterator[list[str]]:
    """Computes the sha256 of ``file`` while the block runs; then the list holds it. Stops where the block fails."""
    stopped = threading.Event()
    digest: list[str] = []

    def run() -> str:
        whole = hashlib.sha256()
        for piece in file.pieces(0, len(file.view())):
            if stopped.is_set():
                break
            whole.update(piece)
        return whole.hexdigest()

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(run)
        try:
            yield digest
        except BaseException:
            stopped.set()
            raise
        digest.append(found.result())
