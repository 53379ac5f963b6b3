"""The bridge (bridge.cc), built by the machine's own compiler on first use and kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata, util
from pathlib import Path

from ...ir.core.errors import RuntimeFailure
from ...ir.files.atomic import explained, scratch_name

SOURCE = Path(__file__).with_name("bridge.cc")
COMPILER = "g++"
FIRST = (2, 9)
"""The first MindSpore whose compiler hands whole graphs to passes of others."""
OTHER_WAY = "bc.capture(cell, *inputs) with bc.Session trains the same cell without it."
INCLUDED = (
    "", "mindspore", "mindspore/core/include", "mindspore/ccsrc", "mindspore/ccsrc/include", "mindspore/ops",
    "mindspore/ops/include", "mindspore/ops/kernel/include", "third_party", "third_party/include",
    "third_party/robin_hood_hashing", "third_party/robin_hood_hashing/include",
)  # fmt: skip
FLAGS = (
    "-std=c++17", "-O1", "-fPIC", "-shared", "-Wno-attributes", "-DPASS_PLUGIN_EXPORTS", "-DMINDSPORE_PASS",
    "-D_GLIBCXX_USE_CXX11_ABI=0",  # MindSpore's wheels have the strings of the older library
    "-DENABLE_FAST_HASH_TABLE=1",  # and these hash maps: with others the bridge compiles and crashes
)  # fmt: skip
LIBRARIES = ("mindspore_core", "mindspore_common", "mindspore_backend_common")


def bridge() -> Path:
    """The library, which this builds where the cache has none for this source, MindSpore and Python.

    RuntimeFailure where MindSpore is missing or too old, or where it cannot be built.
    """
    version = mindspore_version()
    home = util.find_spec("mindspore")
    assert home is not None
    assert home.origin is not None
    place = cache_folder() / f"bridge-{_key(version)}.so"
    if not place.is_file():
        _build(Path(home.origin).parent, place)
    return place


def mindspore_version() -> str:
    """RuntimeFailure unless a MindSpore is installed that has a place for the bridge."""
    try:
        version = metadata.version("mindspore")
    except metadata.PackageNotFoundError:
        raise RuntimeFailure("MindSpore is not installed: pip install mindspore") from None
    if tuple(int(part) for part in version.split(".")[:2]) < FIRST:
        raise RuntimeFailure(
            f"MindSpore {version} hands no graph to passes of others, as bc.enable needs; 2.9 and later do.",
            python=f"Install one of these, or: {OTHER_WAY}",
        )
    return version


def cache_folder() -> Path:
    """The user's, as the XDG specification has it."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / "boost-compile"


def _key(version: str) -> str:
    what = [SOURCE.read_text(), version, sys.version, sysconfig.get_platform(), *FLAGS, *INCLUDED, *LIBRARIES]
    return hashlib.sha256("\0".join(what).encode()).hexdigest()[:24]


def _build(mindspore: Path, place: Path) -> None:
    compiler = shutil.which(COMPILER)
    if compiler is None:
        raise RuntimeFailure(
            f"bc.enable builds a small bridge to MindSpore's compiler, once, and this machine has no {COMPILER}.",
            python=f"Install it (Debian, Ubuntu: apt install g++; Fedora, openEuler: dnf install gcc-c++), or: "
            f"{OTHER_WAY}",
        )
    python = Path(sysconfig.get_paths()["include"])
    if not (python / "Python.h").is_file():
        raise RuntimeFailure(
            f"bc.enable builds a small bridge to MindSpore's compiler, once, and Python's headers are not in {python}.",
            python="Install them (Debian, Ubuntu: apt install python3-dev; Fedora, openEuler: dnf install "
            f"python3-devel), or: {OTHER_WAY}",
        )
    with explained(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        made = scratch_name(place)
        places = [f"-I{mindspore / 'include' / name}" for name in INCLUDED] + [f"-I{python}", f"-L{mindspore / 'lib'}"]
        command = [compiler, *FLAGS, str(SOURCE), "-o", str(made), *places, *(f"-l{name}" for name in LIBRARIES)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0 or not made.is_file():
                raise RuntimeFailure(
                    f"the bridge to MindSpore's compiler could not be built: {_first_error(done.stderr)}",
                    python=f"bc.enable was tried with MindSpore 2.9 and 2.10. {OTHER_WAY}",
                )
            os.replace(made, place)  # two processes may build at once: each replaces a whole file by a whole file
        finally:
            made.unlink(missing_ok=True)


def _first_error(said: str) -> str:
    lines = said.strip().splitlines()
    return next((line.strip() for line in lines if "error" in line), lines[-1].strip() if lines else "it said nothing")
