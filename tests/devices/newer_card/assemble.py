"""MindSpore's GPU kernels with machine code for another card, assembled from the PTX that stands beside the old code.

`libcuda_ops.so.11` holds a fat binary for each source file: machine code for some cards, and PTX, which an assembler
makes machine code for later cards of. The driver would do that whenever the library is loaded, for 200 MB of PTX. Here
each fat binary gets the code for one card in place of all that it held, with zeros behind it, so that nothing moves
and the file is mostly holes.
"""

from __future__ import annotations

import mmap
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

MAGIC = 0xBA55ED50
HEADER = struct.Struct("<IHHQ")
"""Of a fat binary: magic, version, bytes of the header, bytes of the entries behind it."""
ENTRY = struct.Struct("<HHIQ")
"""How each entry begins: kind, version, bytes of its header, bytes of what follows the header."""
PTX, MACHINE = 1, 2
CAPABILITY, FLAGS = 28, 40
"""Where in the header of an entry its compute capability stands (86 for 8.6), as 4 bytes, and its flags, as 8."""
COMPRESSED = 0xF000
ALIGNED = 8


@dataclass(frozen=True)
class FatBinary:
    """Its place in the file, and its entries: (kind, capability) and their places."""

    place: int
    header: int
    size: int
    entries: tuple[tuple[int, int, int], ...]

    @property
    def contents(self) -> int:
        return self.place + self.header


def fat_binaries(file: mmap.mmap | bytes | bytearray, start: int, size: int) -> Iterator[FatBinary]:
    """Those of a section, in order."""
    place = start
    while place + HEADER.size <= start + size:
        magic, _, header, bytes_ = HEADER.unpack_from(file, place)
        if magic != MAGIC:
            place += ALIGNED
            continue
        entries, at = [], place + header
        while at < place + header + bytes_:
            kind, _, own, following = ENTRY.unpack_from(file, at)
            (capability,) = struct.unpack_from("<I", file, at + CAPABILITY)
            entries.append((kind, capability, at))
            at += own + following
        yield FatBinary(place, header, bytes_, tuple(entries))
        place += -(-(header + bytes_) // ALIGNED) * ALIGNED


def replace(file: mmap.mmap | bytearray, fat: FatBinary, code: bytes, capability: int) -> None:
    """Puts machine code for one card in place of all entries. Its header is that of the newest code that stood there.

    Raises ValueError where there was none, where it was compressed, or where the new code is larger than all entries.
    """
    there = max(((found, at) for kind, found, at in fat.entries if kind == MACHINE), default=None)
    if there is None:
        raise ValueError(f"the fat binary at byte {fat.place} has no machine code")
    _, at = there
    _, _, own, _ = ENTRY.unpack_from(file, at)
    header = bytearray(file[at : at + own])
    if struct.unpack_from("<Q", header, FLAGS)[0] & COMPRESSED:
        raise ValueError(f"the machine code at byte {at} is compressed")
    code += bytes(-len(code) % ALIGNED)
    struct.pack_into("<Q", header, 8, len(code))
    struct.pack_into("<I", header, CAPABILITY, capability)
    new = bytes(header) + code
    if len(new) > fat.size:
        raise ValueError(f"{len(new)} bytes for {capability} do not fit into the {fat.size} at byte {fat.place}")
    file[fat.contents : fat.contents + fat.size] = new + bytes(fat.size - len(new))
    struct.pack_into("<Q", file, fat.place + 8, len(new))


def section(library: Path) -> tuple[int, int]:
    """The place and the size of the fat binaries in a library."""
    told = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\.nv_fatbin\s+PROGBITS\s+\w+\s+(\w+)\s+(\w+)", told)
    if found is None:
        raise ValueError(f"{library} has no GPU kernels (section .nv_fatbin)")
    place, size = (int(number, 16) for number in found.groups())
    return place, size


@dataclass(frozen=True)
class Tools:
    """`ptxas` and `cuobjdump` of a CUDA toolkit that knows the card."""

    ptxas: Path
    cuobjdump: Path

    def ptx(self, library: Path, folder: Path, which: str = "all") -> dict[int, Path]:
        """The PTX of a library's fat binaries, by their number from 0; `which` is a part of the name of one, or all."""
        found = max(re.findall(r"\.sm_(\d+)\.ptx", self._run(self.cuobjdump, "-lptx", library)), key=int)
        self._run(self.cuobjdump, "-arch", f"sm_{found}", "-xptx", which, library.resolve(), cwd=folder)
        return {int(path.name.split(".")[-3]) - 1: path for path in sorted(folder.glob("*.ptx"))}

    def assembled(self, ptx: Path, capability: int) -> bytes:
        code = ptx.with_suffix(".cubin")
        self._run(self.ptxas, f"-arch=sm_{capability}", ptx, "-o", code)
        return code.read_bytes()

    def _run(self, *command: str | Path, cwd: Path | None = None) -> str:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stderr[-3000:]}")
        return done.stdout


def assemble(library: Path, to: Path, capability: int, tools: Tools, jobs: int) -> int:
    """Writes the library with code for one card alone; the number of fat binaries. Takes some 25 minutes of a core."""
    with tempfile.TemporaryDirectory(dir=to.parent) as scratch, ThreadPoolExecutor(jobs) as pool:
        ptx = tools.ptx(library, Path(scratch))
        codes = {number: pool.submit(tools.assembled, path, capability) for number, path in ptx.items()}
        write(library, to, capability, {number: code.result() for number, code in codes.items()})
    return len(codes)


def write(library: Path, to: Path, capability: int, codes: Mapping[int, bytes]) -> None:
    """The library with `codes[i]` in its i-th fat binary. Raises ValueError unless there is one for each."""
    place, size = section(library)
    shutil.copyfile(library, to)
    with open(to, "r+b") as stream, mmap.mmap(stream.fileno(), 0) as file:
        found = [*fat_binaries(file, place, size)]
        if len(found) != len(codes):
            raise ValueError(f"{library.name} has {len(found)} fat binaries, and there is PTX of {len(codes)}")
        for number, fat in enumerate(found):
            replace(file, fat, codes[number], capability)
