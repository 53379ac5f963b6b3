"""The part of MindSpore that a run on a GPU loads: its Python files, and the libraries that are in memory then."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from ..build import plugins
from ..gpu import OPERATORS, environment

TRAINED = "lenet_bn"
LIBRARY = re.compile(r"\.(so(\.[\d.]+)?|a|o|h|hpp)$")
WITHOUT_PYTHON = ("include", "lib")
"""Folders of the package without Python files."""


def loaded() -> set[str]:
    """The libraries of MindSpore that are in memory when a network has trained on the stand-in for a GPU."""
    code = f"from {__name__} import tell_loaded; tell_loaded()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment()}, capture_output=True, text=True, check=False
    )
    names = {line for line in done.stdout.splitlines() if ".so" in line}
    if done.returncode != 0 or not names:
        raise RuntimeError(f"{TRAINED} did not train on the stand-in for a GPU\n{done.stderr[-3000:]}")
    return {_plain(name) for name in names} | {OPERATORS}


def tell_loaded() -> None:
    """Trains, and prints the names: the work of the process of `loaded`."""
    import mindspore

    mindspore.set_device("GPU")
    import boost_compile as bc
    from tests.conftest import export_once, zoo_folder
    from tests.networks import CASES

    program = bc.compile(str(export_once(TRAINED, zoo_folder())), "overflow-check", target="gpu")
    session = bc.Session(program, device="GPU")
    for batch in CASES[TRAINED].batches(2):
        print(session.step(*batch).loss)
    package = str(plugins().parent.parent)
    for line in Path("/proc/self/maps").read_text().splitlines():
        _, found, name = line.partition(f" {package}/")
        if found:
            print(Path(name).name)
    sys.stdout.flush()
    os._exit(0)  # the stand-ins do not know how a device is given back


def carry(package: Path, to: Path, libraries: Collection[str]) -> None:
    """Puts that part of the package into the folder `to`: as links where that is possible, for it may be large."""

    def ignored(folder: str, names: list[str]) -> list[str]:
        inner = Path(folder).relative_to(package).parts
        binary = inner[:1] and inner[0] in WITHOUT_PYTHON
        files = [name for name in names if not Path(folder, name).is_dir()]
        needless = [name for name in files if (binary or LIBRARY.search(name)) and _plain(name) not in libraries]
        return [*needless, *({"__pycache__", "include"}.intersection(names))]

    shutil.copytree(package, to, ignore=ignored, copy_function=_link)


def _link(source: str, to: str) -> None:
    try:
        os.link(source, to)
    except OSError:  # another file system
        shutil.copy2(source, to)


def _plain(name: str) -> str:
    """`_c_expression.so` of `_c_expression.cpython-311-x86_64-linux-gnu.so`: the same for each version of Python."""
    return re.sub(r"\.cpython-[^.]*\.so", ".so", name)
