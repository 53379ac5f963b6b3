"""The shared libraries that a shared library asks for by name, read from its file (ELF, 64 bits)."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRINGS = 1, 5


def needed_libraries(path: Path) -> list[str]:
    """The names that the dynamic linker looks up for it; none of what is no such file."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:5] != b"\x7fELF\x02":
            return []
        (start,) = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        segments = [struct.unpack_from("<IIQQQQ", data, start + i * size) for i in range(count)]
        entries: list[tuple[int, int]] = []
        for kind, _, offset, _, _, length in segments:
            if kind == _DYNAMIC:
                entries += [struct.unpack_from("<qQ", data, at) for at in range(offset, offset + length, 16)]
        for tag, address in entries:
            if tag == _STRINGS:
                at = _place(address, segments)
                names = [at + value for tag, value in entries if tag == _NEEDED]
                return [data[name : data.find(b"\0", name)].decode() for name in names]
    return []


def _place(address: int, segments: list[tuple[int, ...]]) -> int:
    """The place in the file of what stands at an address in memory."""
    for kind, _, offset, start, _, length in segments:
        if kind == _LOAD and start <= address < start + length:
            return address - start + offset
    raise ValueError(f"no segment holds {address:#x}")
