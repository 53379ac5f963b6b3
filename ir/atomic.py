"""Files and directories that appear complete or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from .errors import Error


def scratch_name(path: Path, role: str = "tmp") -> Path:
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
        temporary = scratch_name(path)
        with open(temporary, "xb") as file:
            try:
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
def replacing_directory(path: Path) -> Iterator[Path]:
    """A new directory that takes the place of ``path`` (an older one is removed) when the block ends well.

    The two swap by rename; should the second rename fail, the first is undone.
    """
    with explained(path):
        temporary = scratch_name(path)
        temporary.mkdir()
        old: Path | None = None
        try:
            yield temporary
            sync_directory(temporary)
            if path.exists():
                old = scratch_name(path, "old")
                os.rename(path, old)
            try:
                os.rename(temporary, path)
            except OSError:
                if old is not None:
                    os.rename(old, path)
                raise
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_directory(path.parent)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
