"""What is made for a newer card, as far as that can be without one: on the stand-ins, under the newer names."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from .. import gpu
from ..available import built
from ..build import library, plugins
from . import __main__ as command
from . import shims
from .assemble import ENTRY, HEADER, MACHINE, MAGIC, PTX, Tools, fat_binaries, replace, section
from .carry import TRAINED, carry, loaded

ROOT = Path(__file__).parents[3]
LACKING = ("cudnnRNNForwardTraining", "cusparseScsrgemm2")
"""Two that the newer libraries no longer have."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the libraries of a machine with CUDA 13 and cuDNN 9: stand-ins under the newer names."""
    built("GPU")
    folder = tmp_path_factory.mktemp("machine")
    for shim in shims.SHIMS:
        library(folder / shim.new, gpu.bodies(shim.old), shims.names()[shim.old] - {*LACKING}, shim.new)
    for kept in (gpu.DRIVER, "libcurand.so.10"):
        shutil.copy(gpu.libraries() / kept, folder)
    return folder


@pytest.fixture(scope="module")
def prepared(machine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command makes: MindSpore's part, shims, runtime; the kernels are those of the stand-in."""
    folder = tmp_path_factory.mktemp("prepared") / "folder"
    carry(plugins().parent.parent, folder / "site" / "mindspore", loaded() - {gpu.OPERATORS})
    command.libraries(folder, gpu.libraries() / command.RUNTIME)
    shutil.copy(gpu.libraries() / gpu.OPERATORS, folder / "lib")
    (folder / "tests").symlink_to(ROOT / "tests", target_is_directory=True)
    shutil.copy(command.RUN, folder)
    return folder


@pytest.mark.slow
def test_a_network_trains_through_the_shims_on_the_part_that_is_carried(prepared: Path, machine: Path) -> None:
    """As on the machine: by the script, from the folder, with the steps that test a card."""
    size = sum(path.stat().st_size for path in (prepared / "site").rglob("*") if path.is_file())
    whole = sum(path.stat().st_size for path in plugins().parent.parent.rglob("*") if path.is_file())
    assert size < whole * 0.3
    steps = f"tests.devices.card --device GPU --quick --network {TRAINED} --pipeline accumulate"
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(machine),
        "LD_PRELOAD": str(prepared / "lib" / gpu.OPERATORS),  # instead of the 800 MB beside MindSpore
    }
    done = subprocess.run(
        [prepared / "run", sys.executable, "-m", *steps.split()],
        cwd=prepared,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "libcublas.so.11, libcublas.so.13, libcudart.so.11.0, libcudnn.so.8, libcudnn.so.9" in done.stdout
    assert f"| {TRAINED} | `accumulate` | 0.0e+00 |" in done.stdout


def test_what_the_newer_library_lacks_is_told_and_not_supported(prepared: Path, machine: Path) -> None:
    code = "import ctypes; f = ctypes.CDLL('libcudnn.so.8').cudnnRNNForwardTraining; print(f(), f())"
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{prepared / 'lib'}:{machine}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "9 9\n"
    assert done.stderr == "libcudnn.so.9 has no cudnnRNNForwardTraining, which libcudnn.so.8 had\n"


def test_a_newer_library_that_is_missing_is_told(prepared: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(prepared / "lib")}
    code = "import ctypes; print(ctypes.CDLL('libcudnn.so.8').cudnnCreate())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.startswith("libcudnn.so.8 stands for libcudnn.so.9, which cannot be loaded: libcudnn.so.9: ")
    assert done.stdout == "9\n"


def fat_binary(*entries: tuple[int, int, bytes], flags: int = 0) -> bytes:
    """As a CUDA compiler writes it: (kind, capability, content)."""
    whole = b""
    for kind, capability, content in entries:
        header = bytearray(64)
        ENTRY.pack_into(header, 0, kind, 0x101, 64, len(content))
        struct.pack_into("<I", header, 28, capability)
        struct.pack_into("<Q", header, 40, flags)
        whole += bytes(header) + content
    return HEADER.pack(MAGIC, 1, 16, len(whole)) + whole


def test_the_code_for_a_card_takes_the_place_of_all_others() -> None:
    one = fat_binary((MACHINE, 70, b"s" * 24), (MACHINE, 80, b"n" * 40), (PTX, 86, b"p" * 16))
    file = bytearray(bytes(8) + one + bytes(16) + one)
    first, second = fat_binaries(file, 8, len(file) - 8)
    assert (first.place, second.place) == (8, 8 + len(one) + 16)
    replace(file, second, b"new code", 90)
    (unchanged, changed) = fat_binaries(file, 8, len(file) - 8)
    assert unchanged == first
    ((kind, capability, at),) = changed.entries
    assert (kind, capability) == (MACHINE, 90)
    assert file[at + 64 : at + 72] == b"new code"
    assert not any(file[at + 72 :])
    assert len(file) == 8 + 2 * len(one) + 16


@pytest.mark.parametrize(
    ("entries", "flags", "told"),
    [
        ([(PTX, 86, b"p" * 16)], 0, "has no machine code"),
        ([(MACHINE, 80, b"n" * 8)], 0, "do not fit"),
        ([(MACHINE, 80, b"n" * 64)], 0x2000, "is compressed"),
    ],
)
def test_a_fat_binary_that_is_otherwise_is_told(entries: list[tuple[int, int, bytes]], flags: int, told: str) -> None:
    file = bytearray(fat_binary(*entries, flags=flags))
    (fat,) = fat_binaries(file, 0, len(file))
    with pytest.raises(ValueError, match=told):
        replace(file, fat, b"c" * 24, 90)


@pytest.mark.slow
def test_kernels_of_mindspore_are_assembled(tmp_path: Path) -> None:
    """Two of its fat binaries, with the real assembler; they hold the kernels that they held."""
    operators = plugins() / "gpu" / gpu.OPERATORS
    if not operators.exists():
        pytest.skip("this MindSpore package has no GPU kernels")
    try:
        unpacked = command.unpack(command.download(command.TOOLS, tmp_path / "wheels"), tmp_path / "tools")
    except command.click.ClickException as error:
        pytest.skip(f"the assembler cannot be had here: {error}")
    tools = Tools(command.found(unpacked, "ptxas"), command.found(unpacked, "cuobjdump"))
    place, size = section(operators)
    with open(operators, "rb") as stream:
        stream.seek(place)
        held = bytearray(stream.read(size))
    fats = [*fat_binaries(held, 0, size)]
    smallest = sorted(range(len(fats)), key=lambda number: fats[number].size)[:2]
    for number in smallest:
        (ptx,) = tools.ptx(operators, folder_of(tmp_path, number), f".{number + 1}.sm_").items()
        assert ptx[0] == number
        code = tools.assembled(ptx[1], 90)
        replace(held, fats[number], code, 90)
        (new,) = [*fat_binaries(held, fats[number].place, fats[number].size)][:1]
        assert [(kind, capability) for kind, capability, _ in new.entries] == [(MACHINE, 90)]
        entries = {line.split("(")[0].split()[-1] for line in ptx[1].read_text().splitlines() if ".entry" in line}
        names = subprocess.run(["nm", ptx[1].with_suffix(".cubin")], capture_output=True, text=True, check=True).stdout
        assert entries <= set(names.split())


def folder_of(parent: Path, number: int) -> Path:
    folder = parent / str(number)
    folder.mkdir()
    return folder
