"""What rooms may import (the contracts in pyproject.toml), and what tests may; and that a breach is seen."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tests.lines import SLACK, budgets, counted

ROOT = Path(__file__).parent.parent
CHECK = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports('pyproject.toml'))"


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", CHECK], cwd=folder, capture_output=True, text=True, check=False)


def links(folder: Path) -> Path:
    """The package as it is installed, made of links, in a folder of its own."""
    package = folder / "boost_compile"
    package.mkdir()
    for source in (ROOT / "boost_compile").glob("*.py"):
        (package / source.name).symlink_to(source)
    for room in ("ir", "passes", "runtime", "tools"):
        (package / room).symlink_to(ROOT / room, target_is_directory=True)
    (folder / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    return package


def test_arrows_between_rooms_point_one_way(tmp_path: Path) -> None:
    links(tmp_path)
    done = check(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_breach_is_seen(tmp_path: Path) -> None:
    package = links(tmp_path)
    (package / "ir").unlink()
    (package / "ir").mkdir()
    for source in (ROOT / "ir").iterdir():
        if source.name != "core":
            (package / "ir" / source.name).symlink_to(source, target_is_directory=source.is_dir())
    (package / "ir" / "core").mkdir()
    for source in (ROOT / "ir" / "core").glob("*.py"):
        (package / "ir" / "core" / source.name).symlink_to(source)
    (package / "ir" / "core" / "extra.py").write_text("def f():\n    from ..analysis.functions import calls\n")
    done = check(tmp_path)
    assert done.returncode == 1
    assert "boost_compile.ir.core.extra" in done.stdout


def imported(source: Path) -> list[str]:
    """What a module imports, by the names as they are written."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module or "", *(f"{node.module or ''}.{alias.name}" for alias in node.names)]
    return found


def test_tests_import_no_tests_and_no_benchmarks() -> None:
    """What they share stands in modules of its own."""
    found = {
        f"{source.relative_to(ROOT)}: {name}"
        for source in (ROOT / "tests").rglob("*.py")
        for name in imported(source)
        if name.split(".")[0] == "benchmarks" or any(part.startswith("test_") for part in name.split("."))
    }
    assert found == set()


def test_no_room_has_more_lines_than_it_may() -> None:
    """A number that a room stays well below has to follow it: ``python -m tests.lines``."""
    now, may = counted(), budgets()
    assert {room: n for room, n in now.items() if n > may.get(room, 0)} == {}
    assert {room: n for room, n in may.items() if n - now[room] > SLACK} == {}
