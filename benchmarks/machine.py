"""On which machine, and with what, something was measured."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any

NOT_INHERITED = (
    "PYTHONDONTWRITEBYTECODE", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "BOOST_COMPILE_VERIFY_EACH",
    "BOOST_COMPILE_VERIFY_LOWERED",
)  # fmt: skip
"""The second is set by `import mindspore`, for all processes started from there: protobuf in pure Python. The last two
are set by `tests/conftest.py`, from which benchmarks take networks: they verify more than a user's process does."""


KEPT = "BENCHMARKS_KEPT"
"""The environment variable that names a file for :func:`kept`."""


def kept(key: str, measure: Callable[..., Any], *arguments: object) -> Any:
    """What ``measure`` returns for the arguments, of the types of JSON. Where :data:`KEPT` names a file, what stands
    there under ``key`` is returned instead, and else is added: so a long benchmark that was cut off goes on when it is
    started again."""
    path = Path(os.environ[KEPT]) if os.environ.get(KEPT) else None
    known: dict[str, Any] = json.loads(path.read_text()) if path is not None and path.exists() else {}
    if key not in known:
        known[key] = measure(*arguments)
        if path is not None:
            path.write_text(json.dumps(known))
    return known[key]


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


def machine_type() -> str:
    """What is the same where times can be compared: processor, cores, memory, system, Python."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = f"{platform.python_implementation()} {'.'.join(platform.python_version_tuple()[:2])}"
    system = f"{platform.system()} {platform.machine()}"
    return f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GB; {system}; {python}"


def yardstick() -> float:
    """Seconds of processor time that a fixed piece of plain Python takes, the least of several turns: how fast the
    machine is at the moment, with what else runs on it."""
    times = []
    for _ in range(9):
        start = process_time()
        made: dict[str, list[object]] = {}
        for i in range(20_000):
            made[str(i)] = [i, made.get(str(i // 2))]
        times.append(process_time() - start)
    return min(times)


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
