"""What commands show on a terminal of 80 columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from .support import process
from .terminal import on_terminal

FORWARD = "graph @step(%x: float32[2]) {\n  %b = Neg(%x)\n  return %b\n}\n"


@pytest.fixture
def forward(tmp_path: Path) -> Path:
    (tmp_path / "forward.ir").write_text(FORWARD)
    return tmp_path


def test_an_error_has_colour_and_its_lines_hang(forward: Path) -> None:
    screen = on_terminal("compile", "forward.ir", "--accumulate", "2", folder=forward)
    assert screen.code == 2
    assert screen.shown.startswith("\x1b[1;31mboost-compile: error:\x1b[0m 'step' is a forward graph")
    code = [line for line in screen.lines if line.startswith(("    net", "    mindspore"))]
    assert len(code) == 2
    others = [line for line in screen.lines if line and line not in code]
    assert max(map(len, others)) <= 80
    assert all(line.startswith("  ") for line in others[1:])
    assert "\\n" not in screen.text


def test_an_error_in_a_file_has_neither(forward: Path) -> None:
    done = process("inspect", forward / "forward.ir", "--format", "anatomy")
    assert done.code == 2
    first, *others = done.err.splitlines()
    assert first.startswith("boost-inspect: error: 'step' is a forward graph: it holds no backward part. boost-compile")
    assert all(line.startswith("  ") for line in others)
    assert len(others) == 3
    assert "\\n" not in done.err
    assert "\x1b" not in done.err
