"""Bytes of state and constants, held lazily: mapped from files, shared between graphs, never copied by a pass."""

from __future__ import annotations

import hashlib
import mmap
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import Error, FormatError
from .types import DType, TensorType

if TYPE_CHECKING:
    import numpy as np


class MappedFile:
    """A file mapped into memory on first use; the mapping outlives a rename or removal of the file."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self._view: memoryview | None = None

    def view(self) -> memoryview:
        if self._view is None:
            with open(self.path, "rb") as f:
                if os.fstat(f.fileno()).st_size == 0:
                    self._view = memoryview(b"")
                else:
                    self._view = memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
        return self._view


class Data(ABC):
    """The bytes of one tensor, little-endian and row-major."""

    __slots__ = ()

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """How many bytes there are."""

    @abstractmethod
    def view(self) -> memoryview:
        """The bytes without a copy where the source allows it."""

    def digest(self) -> str:
        """sha256 of the bytes, in hex."""
        return hashlib.sha256(self.view()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Data) and self.nbytes == other.nbytes and self.view() == other.view()

    def __hash__(self) -> int:
        return hash(self.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class MappedData(Data):
    """``length`` bytes at ``offset`` of a mapped file."""

    file: MappedFile
    offset: int
    length: int

    @property
    def nbytes(self) -> int:
        return self.length

    def view(self) -> memoryview:
        whole = self.file.view()
        if self.offset < 0 or self.offset + self.length > len(whole):
            raise FormatError(
                f"{self.file.path}: {self.length} bytes at offset {self.offset} lie past the end of the file "
                f"({len(whole)} bytes). The file is truncated; export or copy it again."
            )
        return whole[self.offset : self.offset + self.length]


@dataclass(frozen=True, slots=True, eq=False)
class BytesData(Data):
    """Bytes held in memory: small constants, values that a pass made, arrays given by the user."""

    data: bytes | memoryview

    @property
    def nbytes(self) -> int:
        return len(self.view())

    def view(self) -> memoryview:
        return memoryview(self.data).cast("B")


@dataclass(frozen=True, slots=True, eq=False)
class ZeroData(Data):
    """All bits zero (accumulators, counters): written out only where a format needs the bytes."""

    length: int

    @property
    def nbytes(self) -> int:
        return self.length

    def view(self) -> memoryview:
        return memoryview(bytes(self.length))


def to_numpy(type_: TensorType, data: Data) -> np.ndarray:
    """Read-only array over the bytes, without a copy. bfloat16 comes as uint16 bit patterns (numpy has no such
    type)."""
    import numpy as np

    if type_.dtype is DType.STRING:
        raise Error("a string tensor has no numpy form")
    if data.nbytes != type_.nbytes:
        raise FormatError(f"{data.nbytes} bytes of data for a tensor of type {type_} ({type_.nbytes} bytes)")
    np_dtype = np.dtype("uint16") if type_.dtype is DType.BFLOAT16 else np.dtype(type_.dtype.value)
    return np.frombuffer(data.view(), dtype=np_dtype).reshape(type_.shape)


def from_numpy(array: np.ndarray) -> tuple[TensorType, BytesData]:
    """Type and bytes of an array (made contiguous and little-endian; copies only when it is not)."""
    import numpy as np

    shape = array.shape
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(shape)
    try:
        dtype = DType(array.dtype.name)
    except ValueError:
        raise Error(f"numpy type {array.dtype} has no tensor type") from None
    data = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    return TensorType(dtype, tuple(int(d) for d in shape)), BytesData(data)
