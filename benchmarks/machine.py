"""On which machine, and with what, something was measured."""

from __future__ import annotations

import os
import platform
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path

NOT_INHERITED = ("PYTHONDONTWRITEBYTECODE", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION")
"""The second is set by `import mindspore`, for all processes started from there: protobuf in pure Python."""


def child_environment() -> dict[str, str]:
    """Of a process that is as a user would start it, and whose modules have their bytecode as in an installation."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    return kept | {"PYTHONPYCACHEPREFIX": str(Path(__file__).parents[1] / ".cache" / "bytecode")}


def describe() -> str:
    """One paragraph: the day; processor, cores, memory, system, Python and libraries; how busy the machine was."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    libraries = ", ".join(f"{name} {version(name)}" for name in ("mindspore", "protobuf", "numpy", "safetensors"))
    busy = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    return (
        f"{date.today()}. {_processor()}, {os.cpu_count()} cores, {memory:.0f} GB; "
        f"{platform.system()} {platform.machine()}; "
        f"{platform.python_implementation()} {platform.python_version()}; {libraries}. "
        f"Load average when it began, over 1, 5 and 15 minutes: {busy}."
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def peak_resident() -> int:
    """The most that this process has had in memory so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent had when it forked
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
