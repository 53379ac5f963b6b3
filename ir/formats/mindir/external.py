"""Data files beside a MindIR: what MindSpore writes for models over 1 GB (``NAME_variables/data_0``).

Byte 0 of a data file is 1 for little-endian; tensors start at multiples of 64. A location is relative to the MindIR
and stays below its directory: anything else is refused, as by MindSpore.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath, PureWindowsPath

from ...core.data import MappedData, MappedFile
from ...core.errors import FormatError

FRONT = 64
"""Bytes before the first tensor."""
ALIGNMENT = 64


class DataFiles:
    """The data files of one model, each opened and checked once. ``marked``: whether they begin with MindIR's mark."""

    def __init__(self, directory: Path, marked: bool = True):
        self._directory = directory
        self._marked = marked
        self._files: dict[str, MappedFile] = {}

    def data(self, what: str, location: str, offset: int, length: int) -> MappedData:
        """The bytes that the tensor ``what`` says it has."""
        file = self._files.get(location)
        if file is None:
            file = self._files[location] = self._open(what, location)
        size = len(file.view())
        if offset < 0 or length < 0 or offset + length > size:
            raise FormatError(
                f"{what}: {length} bytes at offset {offset} lie outside of its data file '{location}' ({size} bytes); "
                "the data file is truncated or belongs to another export: copy both again"
            )
        return MappedData(file, offset, length)

    def _open(self, what: str, location: str) -> MappedFile:
        parts = PurePosixPath(location).parts + PureWindowsPath(location).parts
        absolute = PurePosixPath(location).is_absolute() or bool(PureWindowsPath(location).anchor)
        if absolute or ".." in parts or "\0" in location:
            raise FormatError(
                f"{what}: its data file '{location}' is not a path below the model's directory, "
                "which no exporter writes; do not use this file"
            )
        path = self._directory / location
        try:
            real, base = path.resolve(), self._directory.resolve()
            regular = path.is_file()
        except (OSError, RuntimeError, ValueError):
            raise FormatError(f"{what}: its data file '{location}' cannot be reached") from None
        if not real.is_relative_to(base):
            raise FormatError(f"{what}: its data file '{location}' is a link that leads out of the model's directory")
        if not regular:
            raise FormatError(
                f"{what}: its data file '{location}' is missing; copy it from where the model was exported, "
                f"to '{os.path.dirname(path) or '.'}'"
            )
        file = MappedFile(path)
        try:
            view = file.view()
        except OSError as error:
            raise FormatError(f"{what}: its data file '{location}' cannot be read: {error.strerror}") from None
        if self._marked and (len(view) == 0 or view[0] != 1):
            raise FormatError(
                f"{what}: its data file '{location}' does not start with the mark of little-endian data; "
                "it is encrypted, big-endian or no data file: export again, unencrypted, on a little-endian machine"
            )
        return file
