"""MindSpore's GPU backend without a GPU: stand-ins for CUDA, cuDNN and the others, and for MindSpore's own kernels."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from .build import SOURCES, built, library, plugins
from .symbols import asked, given

PLUGIN = "libmindspore_gpu.so.11.6"
RELEASE = "11.6"
"""MindSpore chooses the backend by the release that `nvcc --version` tells."""
DRIVER = "libcuda.so.1"
OPERATORS = "libcuda_ops.so.11"
"""MindSpore's own kernels, 800 MB of them."""
VENDOR = (DRIVER, "libcublas.so.11", "libcudart.so.11.0", "libcudnn.so.8", "libcufft.so.10", "libcurand.so.10")
VENDOR += ("libcusolver.so.11", "libcusparse.so.11", "libnvrtc.so.11.2")


def libraries() -> Path:
    """The folder of the stand-ins, built if need be; raises NotPossible."""
    return built("gpu", _make, plugins() / PLUGIN)


def environment() -> dict[str, str]:
    """What a process needs to use them."""
    folder = libraries()
    return {
        "CUDA_HOME": str(folder / "cuda"),
        "LD_LIBRARY_PATH": str(folder),
        "LD_PRELOAD": str(folder / OPERATORS),  # before the real one, which stands beside the backend
    }


def _make(folder: Path) -> None:
    names = _by_library(plugins() / PLUGIN)
    for vendor in VENDOR:
        library(folder / vendor, bodies(vendor), names[vendor], "" if vendor == DRIVER else vendor)
    own = {symbol.name for symbol in given(plugins() / "gpu" / OPERATORS) if symbol.kind in "TW"}
    called = {symbol.name for symbol in asked(plugins() / PLUGIN)}
    library(folder / OPERATORS, sorted(SOURCES.glob("kernels/*.cc")), own & called)
    compiler(folder)


def bodies(vendor: str) -> list[Path]:
    """The sources of a library's functions that have a body."""
    return sorted([*SOURCES.glob(f"{_short(vendor)}.c*"), *SOURCES.glob(f"{_short(vendor)}/*.cc")])


def compiler(folder: Path) -> None:
    """A CUDA_HOME, `cuda` in the folder, with an `nvcc` that tells the release."""
    nvcc = folder / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f'#!/bin/sh\necho "Cuda compilation tools, release {RELEASE}, V{RELEASE}.0"\n')
    nvcc.chmod(0o755)


def _by_library(plugin: Path) -> dict[str, set[str]]:
    """The names that the backend asks of each vendor library: all but the driver's tell theirs by their version."""
    found: dict[str, set[str]] = defaultdict(set)
    for symbol in asked(plugin):
        if symbol.version in VENDOR:
            found[symbol.version].add(symbol.name)
        elif symbol.name.startswith("cu") and symbol.name[2].isupper() and not symbol.version:
            found[DRIVER].add(symbol.name)
    return found


def _short(name: str) -> str:
    """`cudnn` of `libcudnn.so.8`; `cuda_runtime` of `libcudart.so.11.0`: where the sources of a library stand."""
    stem = name.partition(".")[0].removeprefix("lib")
    return {"cudart": "cuda_runtime", "cuda": "cuda_driver"}.get(stem, stem)
