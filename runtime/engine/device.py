"""The devices that MindSpore runs on: chosen, and examined for what they need of the machine."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ...ir.core.errors import RuntimeFailure
from ...ir.core.wording import sentence
from .elf import needed_libraries

DEVICES = ("CPU", "GPU", "Ascend")
CUDA = "11."
CUDA_ADVICE = "CUDA 11.6 to 11.8 with cuDNN 8.5 to 8.9"
CANN = ("8.2", "8.3", "8.5", "9.0", "9.1")
"""The releases that MindSpore 2.10 takes (mindspore/run_check)."""
BACKENDS = {
    "GPU": ("plugin/libmindspore_gpu.so.11.6",),
    "Ascend": ("plugin/libmindspore_ascend.so.2", "plugin/ascend/libmindspore_ascend_res_manager.so"),
}
"""In MindSpore's package, by device."""
_SIMULATED = "MS_SIMULATION_LEVEL"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``remedy``: what to do; empty where it is as it should be."""

    what: str
    found: str
    remedy: str = ""

    @property
    def good(self) -> bool:
        return not self.remedy

    def __str__(self) -> str:
        return f"{self.what}: {self.found}" + (f". {sentence(self.remedy)}" if self.remedy else "")


def named_device(name: str) -> str:
    """The device of that name, in any case, as MindSpore writes it; :class:`RuntimeFailure` where there is none."""
    for device in DEVICES:
        if isinstance(name, str) and device.lower() == name.lower():
            return device
    given = f"'{name}'" if isinstance(name, str) else f"of the kind {type(name).__name__}"
    raise RuntimeFailure(f"no device {given}: give one of {', '.join(DEVICES)}.")


def choose_device(device: str) -> None:
    """Makes MindSpore run on one of ``DEVICES`` from now on; :class:`RuntimeFailure` says what is in the way."""
    try:
        import mindspore
    except Exception as e:  # a protobuf of another version raises its own class
        raise RuntimeFailure(f"MindSpore cannot be imported: {sentence(e)} Repair its installation.") from e
    if mindspore.get_context("device_target") == device:
        return
    try:
        mindspore.set_device(device)
    except Exception as e:
        causes = " ".join(sentence(finding) for finding in machine(device) if not finding.good)
        raise RuntimeFailure(
            f"device {device} cannot be used: {first_paragraph(str(e))} {causes or sentence(OTHERWISE)}",
            python=f"bc.check_device('{device}') looks at all that it needs.",
            command=f"boost-run --check-device {device} looks at all that it needs.",
        ) from e


OTHERWISE = "Choose another device, or start a new process where another one is in use already"


def machine(device: str) -> Iterator[Finding]:
    """What the device needs of this machine, in the order in which MindSpore asks for it. Runs nothing on the device,
    and imports no MindSpore."""
    package = find_spec("mindspore")
    if package is None or not package.submodule_search_locations:
        yield Finding("MindSpore", "not installed", "pip install mindspore")
        return
    folder = Path(package.submodule_search_locations[0], "lib")
    if device == "GPU":
        yield from _cuda()
    if device == "Ascend":
        yield _cann()
    if device in BACKENDS:
        yield _libraries(device, folder)


def _cuda() -> Iterator[Finding]:
    home = os.environ.get("CUDA_HOME")
    install = f"Install {CUDA_ADVICE}, and set CUDA_HOME to its folder"
    if not home:
        yield Finding("CUDA_HOME", "not set, and MindSpore tries no GPU without it", install)
        return
    nvcc = Path(home, "bin", "nvcc")
    if not nvcc.exists():
        yield Finding("CUDA_HOME", f"{home} has no bin/nvcc, which MindSpore asks for the release", install)
        return
    try:
        text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        yield Finding("nvcc", f"{nvcc} cannot be run ({error})", install)
        return
    release = re.search(r"release (\d+\.\d+)", text)
    if release is None or not release[1].startswith(CUDA):
        found = f"CUDA {release[1]}" if release else "it names no release"
        yield Finding("nvcc", f"{nvcc} says: {found}", f"MindSpore's backend is built for {CUDA_ADVICE}")
        return
    yield Finding("CUDA", f"{release[1]} in {home}")


def _cann() -> Finding:
    home = os.environ.get("ASCEND_HOME_PATH")
    releases = f"{', '.join(CANN[:-1])} or {CANN[-1]}"
    if not home:
        remedy = f"Install CANN {releases}, and run 'source .../set_env.sh' in this shell"
        return Finding("CANN", "ASCEND_HOME_PATH is not set", remedy)
    version = Path(home, "compiler", "version.info")
    if not version.exists():
        if os.environ.get(_SIMULATED):
            return Finding("CANN", f"none in {home}; MindSpore simulates the device, so what it computes is not real")
        return Finding("CANN", f"{version} does not exist", f"Set ASCEND_HOME_PATH to the folder of CANN {releases}")
    found = re.search(r"[Vv]ersion\s*=\s*\[?([\w.]+)", version.read_text(errors="replace"))
    release = found[1] if found else "of unknown release"
    if not release.startswith(CANN):
        return Finding("CANN", f"{release} in {home}", f"MindSpore takes CANN {releases}: install one of these")
    return Finding("CANN", f"{release} in {home}")


def _libraries(device: str, folder: Path) -> Finding:
    """The vendor's libraries, which the backend asks for by name."""
    backends = [folder / name for name in BACKENDS[device]]
    for backend in backends:
        if not backend.exists():
            return Finding("libraries", f"this MindSpore has no {backend.name}", "Install MindSpore for Linux")
    own = {path.name for path in folder.rglob("*.so*")}
    asked = dict.fromkeys(name for backend in backends for name in needed_libraries(backend))
    wanted = [name for name in asked if name not in own]
    lacking = [name for name in wanted if not _loads(name)]
    if lacking:
        what = CUDA_ADVICE if device == "GPU" else "CANN"
        where = "and put the folder of its libraries into LD_LIBRARY_PATH"
        return Finding("libraries", f"not found: {', '.join(lacking)}", f"Install {what}, {where}")
    return Finding("libraries", f"all {len(wanted)} that {backends[0].name} asks for are found")


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def first_paragraph(text: str) -> str:
    """The sentence of a MindSpore message that says what happened, without rules, headings and C++ stacks."""
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not set(line) <= {"-"} and not line.startswith("- ")]
    return kept[0] if kept else "no reason given"
