"""Libraries with the names of CUDA 11 and cuDNN 8 that pass each call on to CUDA 13 and cuDNN 9."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ..build import library, plugins
from ..gpu import OPERATORS, PLUGIN
from ..symbols import asked

SOURCE = Path(__file__).with_name("shim.c")


@dataclass(frozen=True)
class Shim:
    """`old` is passed on to `new`. `prefix` begins its functions, `not_supported` is its status of that meaning."""

    old: str
    new: str
    prefix: str
    not_supported: int


SHIMS = (
    Shim("libcublas.so.11", "libcublas.so.13", "cublas", 15),
    Shim("libcudnn.so.8", "libcudnn.so.9", "cudnn", 9),
    Shim("libcufft.so.10", "libcufft.so.12", "cufft", 16),
    Shim("libcusolver.so.11", "libcusolver.so.12", "cusolver", 9),
    Shim("libcusparse.so.11", "libcusparse.so.12", "cusparse", 10),
    Shim("libnvrtc.so.11.2", "libnvrtc.so.13", "nvrtc", 11),
)
"""The driver and cuRAND have kept their names; the CUDA 11 runtime is small and travels along."""


def names() -> dict[str, set[str]]:
    """By old library, the functions that MindSpore's backend and its kernels call."""
    found: dict[str, set[str]] = defaultdict(set)
    for symbol in (*asked(plugins() / PLUGIN), *asked(plugins() / "gpu" / OPERATORS)):
        for shim in SHIMS:
            if symbol.name.startswith(shim.prefix):
                found[shim.old].add(symbol.name)
    return found


def build(folder: Path) -> None:
    """Writes all of them into a folder."""
    functions = names()
    for shim in SHIMS:
        build_one(shim, functions[shim.old], folder)


def build_one(shim: Shim, functions: Collection[str], folder: Path) -> None:
    """Each function looks up its namesake when the library is loaded (shim.c)."""
    with tempfile.TemporaryDirectory() as scratch:
        jumps = Path(scratch, "jumps.s")
        jumps.write_text(_jumps(sorted(functions)))
        told = [f'-DOLD="{shim.old}"', f'-DNEW="{shim.new}"', f"-DNOT_SUPPORTED={shim.not_supported}"]
        library(folder / shim.old, [SOURCE, jumps], version=shim.old, options=told)


def _jumps(functions: list[str]) -> str:
    """Each function jumps to its place in `shim_targets`, with its number in r10, which no argument is passed in."""
    code = [".text"]
    for i, name in enumerate(functions):
        code += [f".globl {name}", f".type {name},@function", f"{name}: movl ${i}, %r10d"]
        code += [f"movq shim_targets+{8 * i}(%rip), %r11", "jmp *%r11"]
    code += [".hidden shim_lacking", ".globl shim_lacking", "shim_lacking: movl %r10d, %edi", "jmp shim_say_lacking"]
    hidden = ("shim_names", "shim_count", "shim_targets")
    data = [f".hidden {name}\n.globl {name}" for name in hidden]
    strings = [f'.Ln{i}: .string "{name}"' for i, name in enumerate(functions)]
    return "\n".join(
        [
            *code,
            *data,
            ".section .rodata",
            *strings,
            f"shim_count: .long {len(functions)}",
            '.section .data.rel.ro,"aw"',
            "shim_names:",
            *(f".quad .Ln{i}" for i in range(len(functions))),
            ".bss",
            ".align 8",
            f"shim_targets: .skip {8 * len(functions)}",
            '.section .note.GNU-stack,"",@progbits',
            "",
        ]
    )
