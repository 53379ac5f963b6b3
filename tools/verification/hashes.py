"""Which files a verification was about: their sha256."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def hashes(original: Path, program: Path, leave_out: Iterable[str] = ()) -> dict[str, str]:
    """sha256 of the original and of each file of the program, by role and name; of what is no file (stdin), none."""
    return {**hashes_of("original", original, leave_out), **hashes_of("program", program, leave_out)}


def hashes_of(role: str, path: Path, leave_out: Iterable[str] = ()) -> dict[str, str]:
    """sha256 of a file, or of each file in a directory, by ``role/name``."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return {f"{role}/{f.name}": sha256(f) for f in files if f.is_file() and f.name not in leave_out}


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
