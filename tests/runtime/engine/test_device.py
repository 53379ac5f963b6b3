"""What a device needs of the machine, and whether it computes: found, named, and told how to mend."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import pytest
from boost_compile.ir.text import parse_program
from boost_compile.runtime.engine import device, device_check
from boost_compile.runtime.engine.device import Finding, machine
from boost_compile.runtime.engine.elf import needed_libraries

import boost_compile as bc
from tests.passes.graphs import LAMB


def backend(name: str) -> Path:
    found = importlib.util.find_spec("mindspore")
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0], "lib", name)


@pytest.mark.mindspore
@pytest.mark.parametrize("name", [name for names in device.BACKENDS.values() for name in names])
def test_needed_libraries_are_those_that_readelf_names(name: str) -> None:
    listed = subprocess.run(["readelf", "-d", backend(name)], capture_output=True, text=True, check=True).stdout
    assert needed_libraries(backend(name)) == [
        line.partition("[")[2].rstrip("]") for line in listed.splitlines() if "(NEEDED)" in line
    ]


def test_what_is_no_library_needs_none(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library, but long enough to hold a header of one")
    assert needed_libraries(tmp_path / "text.so") == []


@pytest.fixture
def cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets CUDA_HOME to a folder whose nvcc prints a text (None: there is no nvcc)."""

    def made(text: str | None) -> list[Finding]:
        nvcc = tmp_path / "bin" / "nvcc"
        nvcc.parent.mkdir()
        if text is not None:
            nvcc.write_text(f"#!/bin/sh\necho '{text}'\n")
            nvcc.chmod(0o755)
        monkeypatch.setenv("CUDA_HOME", str(tmp_path))
        return [finding for finding in machine("GPU") if finding.what != "libraries"]

    return made


@pytest.mark.mindspore
@pytest.mark.parametrize(
    ("text", "what", "found"),
    [
        ("Cuda compilation tools, release 11.8, V11.8.89", "CUDA", "11.8 in"),
        ("Cuda compilation tools, release 13.0, V13.0.1", "nvcc", "says: CUDA 13.0"),
        ("nothing of the kind", "nvcc", "names no release"),
        (None, "CUDA_HOME", "has no bin/nvcc"),
    ],
)
def test_cuda_is_asked_for_its_release(cuda: Any, text: str | None, what: str, found: str) -> None:
    (finding,) = cuda(text)
    assert finding.what == what
    assert found in finding.found
    assert finding.good == (what == "CUDA")
    assert finding.good or "11.6 to 11.8" in finding.remedy


@pytest.mark.mindspore
def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(device, "_loads", lambda name: name not in ("libcudnn.so.8", "libcublas.so.11"))
    home, libraries = machine("GPU")
    assert str(home).startswith("CUDA_HOME: not set, and MindSpore tries no GPU without it. Install CUDA 11.6")
    assert libraries.found == "not found: libcublas.so.11, libcudnn.so.8"
    assert "LD_LIBRARY_PATH" in libraries.remedy
    monkeypatch.setattr(device, "_loads", lambda name: True)
    assert [finding.good for finding in machine("GPU")] == [False, True]


@pytest.mark.mindspore
@pytest.mark.parametrize(
    ("version", "found", "good"),
    [
        ("Version=8.5.0", "8.5.0 in", True),
        ("Version=8.1.RC1", "8.1.RC1 in", False),
        (None, "does not exist", False),
    ],
)
def test_cann_is_asked_for_its_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, found: str, good: bool
) -> None:
    monkeypatch.delenv("MS_SIMULATION_LEVEL", raising=False)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    if version is not None:
        (tmp_path / "compiler").mkdir()
        (tmp_path / "compiler" / "version.info").write_text(f"{version}\nversion_dir=x\n")
    finding = next(iter(machine("Ascend")))
    assert finding.what == "CANN"
    assert found in finding.found
    assert finding.good == good


@pytest.mark.mindspore
def test_a_device_is_tried_and_compared_with_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    report = bc.check_device("cpu")
    assert report.usable
    assert [finding.what for finding in report.findings] == ["versions", "device", "add", "matmul"]
    assert str(report).endswith("matmul: as numpy computes it\nCPU can be used")
    from mindspore import ops

    monkeypatch.setattr(ops, "matmul", ops.add)
    report = bc.check_device("CPU")
    assert not report.usable
    assert "of 64 differ from numpy. Do not train on this device.\nCPU cannot be used" in str(report)


@pytest.mark.mindspore
def test_a_program_is_held_against_the_kernels() -> None:
    fine = parse_program("graph @g(%x: float32[2]) {\n  %r = Neg(%x) : float32[2]\n  return %r\n}")
    assert str(bc.check_device("CPU", fine)).splitlines()[-2:] == [
        "program: CPU has kernels for all of its 1 node",
        "CPU can be used",
    ]
    report = bc.check_device("CPU", parse_program(LAMB))
    assert not report.usable
    (finding,) = [finding for finding in report.findings if not finding.good]
    assert finding.found == "CPU has no kernel for Lamb"
    assert "nn.AdamWeightDecay trains on every target" in finding.remedy


def test_nothing_is_tried_where_something_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_check, "machine", lambda _: [Finding("CUDA_HOME", "not set", "Set it")])
    monkeypatch.setattr(device_check, "_operations", lambda _: pytest.fail("nothing may be run"))
    assert [finding.what for finding in bc.check_device("GPU").findings] == ["versions", "CUDA_HOME"]
    with pytest.raises(bc.Error, match="no device 'TPU': give one of CPU, GPU, Ascend"):
        bc.check_device("TPU")
