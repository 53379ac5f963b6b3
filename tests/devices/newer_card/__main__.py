"""Makes a folder that trains on a newer card, and an archive of it, on a machine with a network and without a card."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import click

from ..gpu import OPERATORS, compiler
from . import shims
from .assemble import Tools, assemble
from .carry import carry, loaded

ROOT = Path(__file__).parents[3]
TOOLS = ("nvidia-cuda-nvcc-cu11==11.8.89", "nvidia-cuda-cuobjdump", "nvidia-cuda-runtime-cu11==11.8.89")
"""The assembler, what takes PTX out of a library, and CUDA 11's runtime: 21 MB."""
RUNTIME = "libcudart.so.11.0"
BESIDE = ("pytest", "hypothesis")
"""What tests/ imports beside the packages that boost-compile depends on."""
PLATFORMS = ("manylinux1_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_28_x86_64")
RUN = Path(__file__).with_name("run")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--python", default="3.12", show_default=True, help="The machine's version of Python.")
@click.option("--capability", default=90, show_default=True, help="The card's compute capability: 90 for 9.0.")
@click.option("--jobs", default=os.cpu_count(), show_default=True, help="Assemblers that run at once.")
@click.option("--part-size", type=click.IntRange(1), metavar="MIB", help="Write the archive in parts of this size.")
@click.option("--ptxas", type=click.Path(exists=True, path_type=Path), help="An assembler that knows a later card.")
def main(folder: Path, python: str, capability: int, jobs: int, part_size: int | None, ptxas: Path | None) -> None:
    if folder.exists():
        raise click.ClickException(f"{folder} is there already: name a folder that is not")
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        scratch = Path(name)
        print("packages ...", flush=True)
        packages(scratch / "all", folder / "site", python)
        print("tools, shims ...", flush=True)
        tools = unpack(download(TOOLS, scratch / "wheels"), scratch / "tools")
        libraries(folder, found(tools, RUNTIME))
        print("kernels: some 25 minutes of a core ...", flush=True)
        with_code = folder / "site" / "mindspore" / "lib" / "plugin" / "gpu" / OPERATORS
        kernels(with_code, capability, Tools(ptxas or found(tools, "ptxas"), found(tools, "cuobjdump")), jobs)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(RUN, folder)
    print("archive ...", flush=True)
    for path in archive(folder, part_size):
        print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")


def packages(everything: Path, site: Path, python: str) -> None:
    """boost-compile and all that it needs, for a version of Python; of MindSpore, what a run loads."""
    shutil.copytree(ROOT, everything / "source", ignore=shutil.ignore_patterns(".*", "build", "*.egg-info"))
    pip("wheel", "--no-deps", "-w", everything / "wheel", everything / "source")  # it leaves files in the source
    (ours,) = (everything / "wheel").glob("*.whl")
    chosen = ["--python-version", python, "--only-binary=:all:", *(f"--platform={name}" for name in PLATFORMS)]
    pinned = f"mindspore=={version('mindspore')}"
    pip("install", "--no-compile", "--target", everything / "site", *chosen, ours, pinned, *BESIDE)
    package = everything / "site" / "mindspore"
    carry(package, site / "mindspore", loaded())
    for path in (everything / "site").iterdir():
        if path.name not in ("mindspore", "bin"):
            path.rename(site / path.name)


def libraries(folder: Path, runtime: Path) -> None:
    """The shims, CUDA 11's runtime and the `nvcc` that MindSpore asks for the release."""
    place = folder / "lib"
    place.mkdir()
    shims.build(place)
    shutil.copy2(runtime, place)
    compiler(folder)


def kernels(library: Path, capability: int, tools: Tools, jobs: int) -> None:
    """MindSpore's kernels with code for the card."""
    assembled = library.with_suffix(".new")
    assemble(library, assembled, capability, tools, jobs)
    assembled.replace(library)


def archive(folder: Path, part_size: int | None) -> list[Path]:
    """The archive beside the folder, whole or in parts."""
    whole = folder.with_name(f"{folder.name}.tar.xz")
    place = ["-C", str(folder.parent), folder.name]
    subprocess.run(["tar", "--create", "--file", whole, "--use-compress-program", "xz -T0", *place], check=True)
    if part_size is None:
        return [whole]
    subprocess.run(["split", "-d", "-b", f"{part_size}M", whole, f"{whole}."], check=True)
    whole.unlink()
    return sorted(folder.parent.glob(f"{whole.name}.*"))


def download(names: Sequence[str], folder: Path) -> list[Path]:
    """The wheels of packages, without what they depend on."""
    pip("download", "--no-deps", "-d", folder, *names)
    return sorted(folder.glob("*.whl"))


def unpack(wheels: Sequence[Path], folder: Path) -> Path:
    """All of them, into one folder."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as file:
            file.extractall(folder)
    return folder


def found(folder: Path, name: str) -> Path:
    """The one file of that name, which can be run."""
    (path,) = folder.rglob(name)
    path.chmod(0o755)
    return path


def pip(command: str, *arguments: str | Path) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", command, "-q", *map(str, arguments)], text=True, stderr=-1)
    if done.returncode != 0:
        raise click.ClickException(f"pip {command}: {re.sub(r'(?m)^WARNING.*$', '', done.stderr).strip()[-2000:]}")


if __name__ == "__main__":
    main()
