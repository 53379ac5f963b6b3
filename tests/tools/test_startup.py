"""Commands start fast: what they must not import, on the way to --help and to a compiled text."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("mindspore", "numpy", "onnx", "google.protobuf", "safetensors", "networkx", "rich", "jsonschema")
COMMANDS = ("compile", "inspect", "prove", "run", "verify")

TEXT = "graph @step(%x: float32[2]) {\n  %a = Exp(%x) : float32[2]\n  %b = Neg(%x)\n  return %b\n}\n"


def loaded_by(statements: str, stdin: str = "") -> set[str]:
    """Which of the heavy modules are loaded after the statements, in a new process."""
    script = f"""
import sys
try:
    {statements}
except SystemExit as stop:
    assert not stop.code, stop.code
print("LOADED", *[m for m in {HEAVY!r} if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], input=stdin, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    return set(line.split()[1:])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_nothing_heavy(command: str) -> None:
    run = f"from boost_compile.tools import cli, {command}; cli.run({command}.command, ['--help'])"
    assert loaded_by(run) == set()


def test_listing_passes_loads_nothing_heavy() -> None:
    run = "from boost_compile.tools import cli, compile; cli.run(compile.command, ['--list-passes'])"
    assert loaded_by(run) == set()


def test_the_passes_package_loads_on_use() -> None:
    manager = "boost_compile.passes.framework.manager"
    assert loaded_by(f"import boost_compile.passes; assert '{manager}' not in sys.modules") == set()


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("compile", ["-", "-q", "--emit", "text", "-o", "-"]),
        ("inspect", ["-", "--format", "text"]),
        ("inspect", ["-", "--format", "json"]),
    ],
)
def test_working_on_text_loads_neither_mindspore_nor_numpy(command: str, arguments: list[str]) -> None:
    run = f"from boost_compile.tools import cli, {command}; cli.run({command}.command, {arguments!r})"
    assert loaded_by(run, TEXT) & {"mindspore", "numpy", "onnx"} == set()
