"""Files and directories that appear complete or not at all, also where the process is killed or the disk is full.

What is being written has a hidden name beside its place, and a lock that the system drops with the process: whoever
writes to the same place next removes what nobody holds any more.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..core.errors import Error

TEMPORARY, OLD = "tmp", "old"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # <fcntl.h>, <linux/fs.h>


def scratch_name(path: Path, role: str = TEMPORARY) -> Path:
    """A free hidden name beside ``path``."""
    return path.with_name(f".{path.name}.{role}-{os.getpid()}-{secrets.token_hex(4)}")


def sync_directory(path: Path) -> None:
    """Makes renames in a directory durable, where the system can."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns what the system refuses into an Error that names the path."""
    try:
        yield
    except OSError as error:
        raise Error(f"{path}: cannot be written: {error.strerror or error}") from None


@contextmanager
def replacing_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` when the block ends well; on failure nothing is left behind.

    Raises Error when the place cannot be written or a directory stands there.
    """
    with explained(path):
        if path.is_dir():
            raise Error(f"{path}: a directory stands there; give another name or remove it")
        clear_leftovers(path)
        temporary = scratch_name(path)
        with open(temporary, "xb") as file:
            try:
                _hold(file.fileno())
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
        sync_directory(path.parent)


@contextmanager
def scratch_directory(path: Path) -> Iterator[Path]:
    """A new directory beside ``path``, which is gone after the block unless the block has moved it."""
    clear_leftovers(path)
    temporary = scratch_name(path)
    temporary.mkdir()
    handle = os.open(temporary, os.O_RDONLY) if os.name == "posix" else None
    try:
        if handle is not None:
            _hold(handle)
        yield temporary
    finally:
        if handle is not None:
            os.close(handle)
        if temporary.is_symlink():  # what stood there was a link to a directory
            temporary.unlink()
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def replacing_directory(path: Path) -> Iterator[Path]:
    """A new directory that takes the place of ``path`` (an older one is removed) when the block ends well.

    Where the system cannot exchange two names at once, the older one is moved aside first. A process that is killed
    between the two renames leaves no directory of this name; :func:`unfinished` finds it then, and the next one that
    writes there puts it back first.
    """
    with explained(path), scratch_directory(path) as temporary:
        yield temporary
        sync_directory(temporary)
        if not os.path.lexists(path):
            os.rename(temporary, path)
        elif not exchange(temporary, path):
            old = scratch_name(path, OLD)
            os.rename(path, old)
            try:
                os.rename(temporary, path)
            except OSError:
                os.rename(old, path)
                raise
            shutil.rmtree(old, ignore_errors=True)
        sync_directory(path.parent)


def exchange(a: Path, b: Path) -> bool:
    """Whether two names were exchanged at once (Linux: ``renameat2``); False, and nothing done, where none can."""
    if sys.platform != "linux":
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # a C library from before 2018
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE) == 0)


def unfinished(path: Path) -> Path | None:
    """What stood at ``path`` until a process was killed while it replaced it; None where something stands there."""
    if os.path.lexists(path):
        return None
    return next((found for found in _beside(path, OLD) if found.is_dir()), None)


def clear_leftovers(path: Path) -> None:
    """Removes what killed processes left beside ``path``, and puts back what one of them had moved aside."""
    moved = unfinished(path)
    if moved is not None:
        with suppress(OSError):
            os.rename(moved, path)
    for found in (*_beside(path, TEMPORARY), *_beside(path, OLD)):
        with suppress(OSError):
            handle = os.open(found, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
            try:
                if not _hold(handle):
                    continue
                if found.is_dir():
                    shutil.rmtree(found, ignore_errors=True)
                else:
                    found.unlink()
            finally:
                os.close(handle)


def _beside(path: Path, role: str) -> list[Path]:
    prefix = f".{path.name}.{role}-"
    try:
        with os.scandir(path.parent) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.name.startswith(prefix))
    except OSError:
        return []


def _hold(handle: int) -> bool:
    """Locks a file or directory while this process has it open; False where that is taken, or cannot be done."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
