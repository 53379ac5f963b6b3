"""What commands show on a terminal of 80 columns."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from boost_compile.tools.tables import Table
from rich.console import Console

import boost_compile as bc

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


# -- tables and long lines ---------------------------------------------------------------------------------------


def hangs(lines: list[str], start: str) -> list[str]:
    """The lines of one statement that begins so: its continuations are indented."""
    at = next(i for i, line in enumerate(lines) if line.startswith(start))
    indent = len(start) - len(start.lstrip())
    more = lines[at + 1 :]
    count = next(i for i, line in enumerate(more) if not line.startswith(" " * (indent + 2)))
    return [lines[at], *more[:count]]


def test_a_report_breaks_no_word(tmp_path: Path, exported: Callable[[str], Path]) -> None:
    shutil.copy(exported("gpt_tied_sgd"), tmp_path / "gpt.mindir")
    flags = ("--accumulate", "4", "--loss-scale", "dynamic", "--clip-norm", "1.0")
    screen = on_terminal("compile", "gpt.mindir", *flags, folder=tmp_path)
    assert screen.code == 0
    assert max(map(len, screen.lines)) <= 80
    words = screen.text.split()
    for word in ("gradient-accumulation", "accumulators)", "micro-batches", "loss-scale", "overflow-check", "dynamic"):
        assert any(word in whole for whole in words), word
    schedule = hangs(screen.lines, "Schedule: ")
    assert len(schedule) == 2
    assert schedule[1].endswith("ends a short window")

    screen = on_terminal("inspect", "gpt.boost", folder=tmp_path)
    assert max(len(line) for line in screen.lines if "sha256" not in line) <= 80
    assert "hyperparameter" in screen.text.split()
    assert len(hangs(screen.lines, "  ops ")) > 1
    assert len(hangs(screen.lines, "Pipeline ")) > 1


def test_a_table_that_does_not_fit_becomes_a_list(tmp_path: Path, exported: Callable[[str], Path]) -> None:
    names = ("gradient-accumulation", "effect-chain-minimization")
    done = process("compile", exported("mlp"), "--accumulate", "4", "--passes", names[1], "-o", tmp_path / "mlp.boost")
    assert done.code == 0
    for width in (80, 50):
        screen = on_terminal("inspect", "mlp.boost", width=width, folder=tmp_path)
        table = screen.lines[screen.lines.index("Passes that made it") :]
        assert max(map(len, table)) <= width
        assert set(names) <= {word for line in table for word in line.split()}
        assert any("changed" in line.split() and "what" in line.split() for line in table) is (width == 80)


def test_in_a_file_lines_stay_whole(tmp_path: Path, exported: Callable[[str], Path]) -> None:
    done = process("compile", exported("mlp"), "--accumulate", "4", "-o", tmp_path / "mlp.boost")
    (line,) = [line for line in done.out.splitlines() if line.startswith("Schedule: ")]
    assert len(line) > 120


@pytest.mark.parametrize("width", [50, 80, 120, 200])
def test_tables_and_lists_hold_every_word(width: int) -> None:
    cells = [
        ("gradient-accumulation{steps=4,reduction=mean,split=apply,dtype=float32}", "11", "two words and more of them"),
        ("blocks.1.attention.output.projection.weight", "1,234", "[bold]marked[/bold] text\nin two lines"),
        ("", "0", ""),
    ]
    made = Table("A title of some words", ("pass", "matched", "what"), numbers=("matched",))
    for row in cells:
        made.add_row(*row)
    out = Console(file=StringIO(), width=width, force_terminal=True, color_system=None)
    out.print(made)
    assert isinstance(out.file, StringIO)
    text = out.file.getvalue()
    words = set(text.split())
    assert {"11", "1,234", "two", "words", "marked", "lines", "A", "title"} <= words
    assert "blocks.1.attention.output.projection.weight" in words
    assert "".join(cells[0][0].split()) in "".join(text.split()) or "gradient-accumulation{" in text
    fits = [line for line in text.splitlines() if len(line.split()) != 1]
    assert max(map(len, fits)) <= width


def test_the_list_of_passes_hangs(tmp_path: Path) -> None:
    screen = on_terminal("compile", "--list-passes", folder=tmp_path)
    assert max(map(len, screen.lines)) <= 80
    assert len(hangs(screen.lines, "gradient-accumulation: ")) > 5


def test_lines_of_a_difference_hang(tmp_path: Path, exported: Callable[[str], Path]) -> None:
    bc.compile(exported("mlp"), "gradient-accumulation{steps=4}").save(tmp_path / "mlp.boost")
    screen = on_terminal("inspect", exported("mlp"), "--diff", "mlp.boost", folder=tmp_path)
    assert screen.code == 1
    assert max(map(len, screen.lines)) <= 80
    added = next(line for line in screen.lines if line.startswith("      + ") and "AssignAdd(" in line)
    assert len(hangs(screen.lines, added)) > 1
    coloured = screen.shown[screen.shown.index(added) :]
    assert coloured.index("\x1b[0m") > coloured.index("\n"), "the lines it continues on have its colour"
    whole = process("inspect", exported("mlp"), "--diff", tmp_path / "mlp.boost")
    assert "".join(whole.out.split()) == "".join(screen.text.split())
