"""A step that bc.enable rewrote, on MindSpore's GPU and Ascend backends: the kernels that these select."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from boost_compile.ir.core.primitives import PRIMITIVES, Family

from tests.boundary import slow

from .available import built
from .running import ENVIRONMENTS, whole

Kernel = tuple[str, tuple[str, ...], tuple[str, ...]]
NODE = re.compile(r"^  %\S+ = (?:PrimFunc_)?(\w+)\(.*\n      : \((.*)\) -> \((.*)\)\n", re.MULTILINE)
"""A node of a graph as MindSpore writes it when kernels are selected, with the types that it takes and returns."""
WINDOW = {"GreaterEqual", "ZerosLike", "Assign"}
"""What the window takes inside of a graph: the count, accumulators that are cleared, results that are kept."""


def kernels(device: str, way: str, folder: Path) -> set[Kernel]:
    """The kernels of all graphs that a process compiles, by primitive and types."""
    folder.mkdir()
    dumps = {"MS_DEV_SAVE_GRAPHS": "2", "MS_DEV_SAVE_GRAPHS_PATH": str(folder)}
    command = [sys.executable, "-m", "tests.devices.enabled_job", device, way]
    environment = whole(ENVIRONMENTS[device]() | dumps)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert "trained" in done.stdout, done.stderr[-2000:]
    found: set[Kernel] = set()
    for path in folder.glob("graph_build_*.ir"):
        for name, taken, returned in NODE.findall(path.read_text()):
            facts = PRIMITIVES.get(name)
            if facts is None or facts.family not in (Family.ORDER, Family.TUPLE):
                found.add((name, types(taken), types(returned)))
    return found


def types(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"Tensor\[(\w+)\]", text))


@pytest.mark.parametrize("device", ["GPU", *slow("Ascend")])
def test_the_kernels_are_those_of_a_program_for_the_device(device: str, tmp_path: Path) -> None:
    built(device)
    enabled, session = (kernels(device, way, tmp_path / way) for way in ("enabled", "session"))
    assert {name for name, _, _ in session} >= {"MatMul", "BiasAdd", "IsFinite"}
    assert session <= enabled
    assert {name for name, _, _ in enabled - session} <= WINDOW
