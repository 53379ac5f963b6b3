"""Reads the lists of kernels: ``cpu.txt``, ``gpu.txt``, ``ascend.txt``.

A line names primitives, and behind a colon what there is for each of them:

- ``f32,i64>f32``: a kernel that takes float32 and int64 and returns float32. ``#i64``: a number that is no tensor.
  ``(i64)``: a tuple. ``?``: any type. ``f32*>f32``: any number of such inputs.
- ``any``: a kernel that says for itself what it takes, or takes everything.
- ``aclnn``, ``aclop``, ``aicpu``, ``hccl``: the ways to a kernel on Ascend. CANN decides which types it takes.
- ``cpu``: no kernel of the target, but MindSpore runs that of the CPU instead.
- ``expanded``: MindSpore replaces the primitive by others where it finds no kernel.

``tests/devices/kernels/read_kernels.py`` writes the files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..types import DType

CODES = {
    "b": DType.BOOL, "i8": DType.INT8, "i16": DType.INT16, "i32": DType.INT32, "i64": DType.INT64,
    "u8": DType.UINT8, "u16": DType.UINT16, "u32": DType.UINT32, "u64": DType.UINT64, "f16": DType.FLOAT16,
    "bf16": DType.BFLOAT16, "f32": DType.FLOAT32, "f64": DType.FLOAT64, "c64": DType.COMPLEX64,
    "c128": DType.COMPLEX128, "str": DType.STRING,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operand:
    """What a kernel takes or returns at one place; ``dtype`` None: anything. ``tensor``: neither number nor tuple."""

    dtype: DType | None
    tensor: bool

    def __str__(self) -> str:
        return str(self.dtype or "any")


@dataclass(frozen=True, slots=True)
class Kernel:
    """``repeated``: it takes any number of such inputs."""

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    repeated: bool


class Kernels:
    """The kernels of one target, by primitive. Only what is asked for is parsed."""

    def __init__(self, text: str):
        found = re.search(r"MindSpore (\d[\d.]*\d)", text)
        self.release = found[1] if found else ""
        """The release of MindSpore that the list was read from."""
        self._texts: dict[str, str] = {}
        for line in text.splitlines():
            names, _, what = line.partition(": ")
            if not line.startswith("#"):
                self._texts.update(dict.fromkeys(names.split(), what))

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def names(self) -> frozenset[str]:
        return frozenset(self._texts)

    def ways(self, name: str) -> frozenset[str]:
        """``any``, ``aclnn``, …: all that is said of the primitive but the types of its kernels."""
        return frozenset(word for word in self._texts.get(name, "").split() if ">" not in word)

    def of(self, name: str) -> tuple[Kernel, ...]:
        """The kernels whose types are known."""
        return _parsed(self._texts.get(name, ""))


@cache
def _parsed(text: str) -> tuple[Kernel, ...]:
    found = []
    for word in text.split():
        before, arrow, after = word.partition(">")
        if arrow:
            repeated = before.endswith("*")
            found.append(Kernel(_operands(before.rstrip("*")), _operands(after), repeated))
    return tuple(found)


def _operands(text: str) -> tuple[Operand, ...]:
    return tuple(Operand(CODES.get(code.strip("#()")), code[0] not in "#(") for code in text.split(",") if code)


@cache
def kernels(target: str) -> Kernels:
    """The list of a target, read once a process."""
    return Kernels(Path(__file__).with_name(f"{target}.txt").read_text("ascii"))
