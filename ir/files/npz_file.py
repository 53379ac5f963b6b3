"""Arrays in numpy's ``.npz`` and ``.npy`` files: no pickles, and no more memory than the file warrants."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..core.errors import FormatError
from ..core.naming import printable
from ..core.types import MAX_RANK

if TYPE_CHECKING:
    import numpy as np

_PIECE = 1 << 20
PACKED = 1032
"""The most that deflate, the only packing that numpy writes, makes of a byte."""


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Name -> array, in the order of the file. FormatError, naming file and array, for whatever holds Python
    objects or says that it holds more than it does."""
    with _explained(path, "an .npz of arrays"), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        _check_sizes(members, path.stat().st_size)
        found = {}
        for member in members:
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as file:
                found[name] = _array(file, f"array '{name}'", member.file_size)
                if file.read(1):
                    raise FormatError(f"array '{name}' is followed by other bytes")
        return found


def check_npy(path: Path) -> None:
    """FormatError unless the ``.npy`` file holds all the numbers that its header says, so that it can be mapped."""
    with _explained(path, "a .npy"), open(path, "rb") as file:
        _header(file, "the array", path.stat().st_size)


def _check_sizes(members: list[zipfile.ZipInfo], size: int) -> None:
    if sum(member.compress_size for member in members) > size:
        raise FormatError("its members overlap")
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FormatError(f"'{member.filename}' is packed in a way that numpy does not write")
        if member.flag_bits & 1:
            raise FormatError(f"'{member.filename}' is encrypted")
        if member.file_size > PACKED * (member.compress_size + 1):
            raise FormatError(
                f"'{member.filename}' says that {member.compress_size} bytes unpack to {member.file_size}"
            )
    if len({member.filename for member in members}) < len(members):
        raise FormatError("two of its arrays have one name")


def _array(file: IO[bytes], what: str, size: int) -> Any:
    import numpy as np

    dtype, shape, fortran = _header(file, what, size)
    flat = np.empty(prod(shape), dtype)
    raw = flat.view(np.uint8).data if flat.nbytes else memoryview(b"")
    for at in range(0, len(raw), _PIECE):
        piece = file.read(min(_PIECE, len(raw) - at))
        if len(piece) != min(_PIECE, len(raw) - at):
            raise FormatError(f"{what} ends early")
        raw[at : at + len(piece)] = piece
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _header(file: IO[bytes], what: str, size: int) -> tuple[Any, tuple[int, ...], bool]:
    """Element type, shape and whether columns come first; what follows in a file of ``size`` bytes fits them."""
    from numpy.lib import format

    npy: Any = format  # typed from numpy 2 on
    version = npy.read_magic(file)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise FormatError(f"{what} is of version {version[0]}.{version[1]} of numpy's format")
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise FormatError(f"{what} holds pickled Python objects, which are never loaded: save plain arrays")
    if len(shape) > MAX_RANK or min(shape, default=0) < 0:
        raise FormatError(f"{what} has the shape {list(shape[:MAX_RANK])}")
    if file.tell() + prod(shape) * dtype.itemsize > size:
        raise FormatError(f"{what} is {dtype}{list(shape)}, and only {size - file.tell()} bytes are there")
    return dtype, shape, fortran


@contextmanager
def _explained(path: Path, what: str) -> Iterator[None]:
    from tokenize import TokenError

    try:
        yield
    except FormatError as error:
        raise FormatError(f"{path}: cannot be read as {what}: {printable(str(error))}") from None
    except MemoryError:
        raise FormatError(f"{path}: does not fit into memory") from None
    except OSError as error:
        raise FormatError(f"{path}: cannot be read as {what}: {error.strerror or error}") from None
    # What zipfile, zlib and the parser of numpy's headers (a Python literal) raise for damaged bytes.
    except (
        zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, SyntaxError, TokenError, KeyError,
        TypeError, ValueError, IndexError, OverflowError, AttributeError,
    ) as error:  # fmt: skip
        raise FormatError(f"{path}: cannot be read as {what}: {printable(str(error))}") from None
