"""Shared libraries from C sources and lists of names, made once and kept in `.cache/devices`."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE / "sources"
CACHE = HERE.parent.parent / ".cache" / "devices"
TOOLS = ("gcc", "g++", "nm")


class NotPossible(Exception):
    """The stand-ins cannot be built here; the text says what is missing."""


def plugins() -> Path:
    """The folder of MindSpore's backends."""
    found = importlib.util.find_spec("mindspore")
    if found is None or not found.submodule_search_locations:
        raise NotPossible("MindSpore is not installed")
    return Path(found.submodule_search_locations[0], "lib", "plugin")


def built(name: str, make: Callable[[Path], None], plugin: Path) -> Path:
    """The folder that `make` fills for the backend `plugin`; made once for each state of the sources and of MindSpore.

    Raises NotPossible where a tool or the backend is missing.
    """
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        raise NotPossible("the stand-ins are written for Linux on x86-64")
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        raise NotPossible(f"{', '.join(lacking)} not found: install a C compiler")
    if not plugin.exists():
        raise NotPossible(f"this MindSpore package has no {plugin.name}")
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / f"{name}-{_key()}"
    with open(CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for old in CACHE.glob(f"{name}-*"):
                shutil.rmtree(old)
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                unfinished = Path(scratch, "made")
                unfinished.mkdir()
                make(unfinished)
                unfinished.rename(folder)
    return folder


def library(
    path: Path, sources: Iterable[Path], stubs: Iterable[str] = (), version: str = "", options: Sequence[str] = ()
) -> None:
    """Builds the shared library `path` from C or C++ sources.

    Each name of `stubs` that no source defines does nothing and returns 0. `version` is the version of every name.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        folder = Path(scratch)
        (folder / "stubs.s").write_text(_assembly(sorted(set(stubs))))
        command = ["-shared", "-fPIC", "-O2", "-w", f"-Wl,-soname,{path.name}", f"-I{SOURCES}", *options]
        if version:
            (folder / "names.map").write_text(f"{version} {{ global: *; }};\n")
            command.append(f"-Wl,--version-script={folder / 'names.map'}")
        parts = [*map(str, sources), str(SOURCES / "stub.c"), str(folder / "stubs.s")]
        compiler = "g++" if any(part.endswith(".cc") for part in parts) else "gcc"
        objects = []
        for i, part in enumerate(parts):
            objects.append(str(folder / f"{i}.o"))
            with_c = "gcc" if part.endswith((".c", ".s")) else "g++"
            _run([with_c, *(o for o in command if not o.startswith(("-Wl", "/"))), "-c", "-o", objects[-1], part])
        _run([compiler, *command, "-o", str(path), *objects])


def _assembly(names: Sequence[str]) -> str:
    """Each name gives its record to `stub_called` and returns 0, as an integer and as a floating-point number.

    The names are weak: where a source defines one, that body counts.
    """
    code = [".text"]
    records = [".data"]
    for i, name in enumerate(names):
        code += [f".weak {name}", f".type {name},@function", f"{name}:", f"leaq .Lr{i}(%rip), %rdi", "jmp .Lstub"]
        records += [f".Lr{i}: .byte 0", f'.string "{name}"']
    code += [
        ".Lstub: subq $8, %rsp",
        "call stub_called",
        "addq $8, %rsp",
        "xorl %eax, %eax",
        "xorps %xmm0, %xmm0",
        "ret",
    ]
    return "\n".join([*code, *records, '.section .note.GNU-stack,"",@progbits', ""])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-3000:]}")


@lru_cache(maxsize=1)
def _key() -> str:
    digest = hashlib.sha256(version("mindspore").encode())
    for name in ("build", "symbols", "gpu", "ascend"):
        digest.update((HERE / f"{name}.py").read_bytes())
    for source in sorted(SOURCES.rglob("*.*")):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:12]
