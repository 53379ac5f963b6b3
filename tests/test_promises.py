"""docs/promises.md names tests, commands and pages that exist, and at least one for each promise."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/promises.md"


def promises() -> list[str]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("| ") and not line.startswith("| promise |")]


def named(row: str) -> list[tuple[str, str | None]]:
    """The (file, test) of the second column; `::test` alone is one of the file before it."""
    found: list[tuple[str, str | None]] = []
    for path, test in re.findall(r"`(tests/[\w/.]+)?(?:::(\w+))?`", row.split(" | ")[1]):
        if path or test:
            found.append((path or found[-1][0], test or None))
    return found


def defined_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("row", promises(), ids=lambda row: row.split(" | ")[0].strip("| ")[:50])
def test_every_promise_names_tests_that_exist(row: str) -> None:
    assert len(row.strip("|").split(" | ")) == 3
    assert named(row)
    for path, test in named(row):
        assert defined_in(path), path
        assert test is None or test in defined_in(path), f"{path} has no {test}"


def test_commands_and_pages_exist() -> None:
    page, makefile = PAGE.read_text(encoding="utf-8"), (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([\w-]+)`", page):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\(([^)]+)\)", page):
        assert (PAGE.parent / link).is_file(), link
