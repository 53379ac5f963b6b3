"""Bytes of state and constants, held lazily: mapped from files, shared between graphs, never copied by a pass."""

from __future__ import annotations

import hashlib
import mmap
import os
import weakref
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from .errors import Error, FormatError
from .types import DType, TensorType

if TYPE_CHECKING:
    import numpy as np


PIECE = 1 << 18
"""Large data is read and written in pieces of so many bytes."""
_ZEROS = bytes(PIECE)


class MappedFile:
    """A file mapped into memory on first use; the mapping outlives a rename or removal of the file."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self._file: BinaryIO | None = None
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None

    def view(self) -> memoryview:
        if self._view is None:
            self._file = open(self.path, "rb", buffering=0)  # noqa: SIM115 - open as long as this object
            weakref.finalize(self, self._file.close)
            if os.fstat(self._file.fileno()).st_size == 0:
                self._view = memoryview(b"")
            else:
                self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
                self._view = memoryview(self._map)
        return self._view

    def release(self) -> None:
        """Gives back the memory of the pages that were looked at; who looks again reads them again."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from ``start`` to ``end``, read: pages of a mapping would count as memory of this process."""
        view = self.view()
        assert self._file is not None
        while start < end:
            stop = min(start + PIECE, end)
            if hasattr(os, "pread"):
                piece = os.pread(self._file.fileno(), stop - start, start)
            else:
                piece = bytes(view[start:stop])
            if not piece:
                raise FormatError(f"{self.path}: became shorter while it was read")
            yield piece
            start += len(piece)

    def copy_to(self, target: BinaryIO, start: int, end: int) -> None:
        """Appends the bytes from ``start`` to ``end`` to an open file, inside the kernel where the system can."""
        view = self.view()
        assert self._file is not None
        target.flush()
        try:
            while start < end:
                sent = os.sendfile(target.fileno(), self._file.fileno(), start, end - start)
                if not sent:
                    raise FormatError(f"{self.path}: became shorter while it was read")
                start += sent
        except (AttributeError, OSError):  # not on this system, or not to such a file
            target.write(view[start:end])


class HeldFile(MappedFile):
    """The bytes of a file that stands in memory alone; ``name`` is what messages call it."""

    def __init__(self, data: bytes, name: str):
        super().__init__(name)
        self._view = memoryview(data)

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        for at in range(start, end, PIECE):
            yield bytes(self.view()[at : min(at + PIECE, end)])

    def copy_to(self, target: BinaryIO, start: int, end: int) -> None:
        target.write(self.view()[start:end])


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

    def pieces(self) -> Iterator[bytes]:
        """The bytes in order; of a large file not through its mapping."""
        view = self.view()
        for start in range(0, len(view), PIECE):
            yield bytes(view[start : start + PIECE])

    def write_to(self, file: BinaryIO) -> None:
        """Appends the bytes to an open file."""
        file.write(self.view())

    def is_zero(self) -> bool:
        """Whether no bit is set."""
        return not any(self.view()[:64]) and all(piece == _ZEROS[: len(piece)] for piece in self.pieces())

    def digest(self) -> str:
        """sha256 of the bytes, in hex."""
        return hashlib.sha256(self.view()).hexdigest()

    def checksum(self) -> int:
        """CRC-32 of the bytes, at the speed of reading them."""
        found = 0
        for piece in self.pieces():
            found = zlib.crc32(piece, found)
        return found

    def check(self, what: str, found: int | None = None) -> None:  # noqa: B027 - most data has no checksum
        """FormatError, which names the tensor ``what``, where the bytes are not those that were written. ``found``:
        their checksum, if it is known."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Data) and self.nbytes == other.nbytes and self.view() == other.view()

    def __hash__(self) -> int:
        return hash(self.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class MappedData(Data):
    """``length`` bytes at ``offset`` of a mapped file; ``written`` is their checksum where the file notes it."""

    file: MappedFile
    offset: int
    length: int
    written: int | None = None

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

    def pieces(self) -> Iterator[bytes]:
        self.view()  # checks that they are there
        return self.file.pieces(self.offset, self.offset + self.length)

    def write_to(self, file: BinaryIO) -> None:
        view = self.view()
        if self.length < PIECE:
            file.write(view)
        else:
            self.file.copy_to(file, self.offset, self.offset + self.length)

    def check(self, what: str, found: int | None = None) -> None:
        if self.written is not None and self.written != (self.checksum() if found is None else found):
            raise FormatError(
                f"{self.file.path}: the bytes of '{what}' are not those that were written: the file is damaged. "
                "Copy or save it again."
            )


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

    def __post_init__(self) -> None:
        if not 0 <= self.length < 2**63:
            raise FormatError(f"a tensor of {self.length} bytes: no file and no memory holds that many")

    @property
    def nbytes(self) -> int:
        return self.length

    def pieces(self) -> Iterator[bytes]:
        for start in range(0, self.length, PIECE):
            yield _ZEROS[: self.length - start]

    def write_to(self, file: BinaryIO) -> None:
        file.writelines(self.pieces())

    def is_zero(self) -> bool:
        return True

    def view(self) -> memoryview:
        try:
            return memoryview(bytes(self.length))
        except (MemoryError, OverflowError):
            raise Error(f"a tensor of zeros of {self.length} bytes does not fit into the memory") from None


@dataclass(frozen=True, slots=True)
class AbsentData(Data):
    """Bytes that a file has left out, of the parameter ``name``: FormatError where they are needed."""

    name: str
    length: int

    @property
    def nbytes(self) -> int:
        return self.length

    def view(self) -> memoryview:
        raise FormatError(
            f"parameter '{self.name}' has no value: the file was written without the data of its parameters, as "
            "MindSpore's compiler writes graphs.",
            python="Give it one: program.with_values({name: array, …}).",
        )

    def check(self, what: str, found: int | None = None) -> None:
        self.view()


def to_numpy(type_: TensorType, data: Data) -> np.ndarray:
    """Read-only array over the bytes, without a copy; of bfloat16, which numpy lacks, the bit patterns as uint16."""
    import numpy as np

    if type_.dtype is DType.STRING:
        raise Error("a string tensor has no numpy form")
    if data.nbytes != type_.nbytes:
        raise FormatError(f"{data.nbytes} bytes of data for a tensor of type {type_} ({type_.nbytes} bytes)")
    np_dtype = np.dtype("uint16") if type_.dtype is DType.BFLOAT16 else np.dtype(type_.dtype.value)
    return np.frombuffer(data.view(), dtype=np_dtype).reshape(type_.shape)


def numbers(type_: TensorType, data: Data) -> np.ndarray:
    """The same with bfloat16 as float32, for who computes with the values."""
    import numpy as np

    array = to_numpy(type_, data)
    return (array.astype(np.uint32) << 16).view(np.float32) if type_.dtype is DType.BFLOAT16 else array


def rounded(type_: TensorType, data: Data, dtype: DType) -> BytesData:
    """The numbers in half precision, rounded to nearest, ties to even; what is too large is infinite."""
    import numpy as np

    array = numbers(type_, data)
    if dtype is DType.FLOAT16:
        with np.errstate(over="ignore"):
            return BytesData(array.astype(np.float16).tobytes())
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return BytesData(np.where(np.isnan(array), (bits >> 16) | 0x40, nearest).astype(np.uint16).tobytes())


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
