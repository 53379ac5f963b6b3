"""Zeros that have to be written out: they take no room in a program or a text, so that one line could fill a disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from ..core.data import Data, ZeroData
from ..core.errors import Error

ZEROS, PER_BYTE = 1 << 30, 64
"""How many bytes of zeros are written for no byte, and for each byte, of other data."""


def check_room(path: Path, data: Iterable[Data]) -> None:
    """Error where a file would hold zeros out of all proportion to the rest, or more of them than the disk takes."""
    zeros = rest = 0
    for piece in data:
        if isinstance(piece, ZeroData):
            zeros += piece.nbytes
        else:
            rest += piece.nbytes
    if zeros <= ZEROS:
        return
    if zeros > PER_BYTE * rest:
        raise Error(
            f"{path}: {zeros} bytes of zeros beside {rest} others would be written, which no training has; "
            "a program directory (NAME.boost) holds zeros without their bytes"
        )
    free = shutil.disk_usage(path.parent).free
    if zeros > free:
        raise Error(f"{path}: {zeros} bytes of zeros would be written, and the disk has room for {free}")
