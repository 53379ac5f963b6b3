"""The public names, and the pages that list them and the passes."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from boost_compile.passes.framework.registry import CLASSES, REGISTRY

import boost_compile as bc

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("script", ["make_api.py", "make_ten_nodes.py"])
def test_the_pages_that_scripts_write_are_current(script: str) -> None:
    if script == "make_ten_nodes.py" and version("mindspore") != "2.10.0":
        pytest.skip("the page shows what MindSpore 2.10.0 exports")
    command = [sys.executable, f"docs/{script}", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_pass_says_what_it_promises_and_where_it_comes_from(name: str) -> None:
    """One sentence, then what it does, then its promise, then its source."""
    cls = REGISTRY[name]
    first, *_, promise, source = (inspect.getdoc(cls) or "").split("\n\n")
    assert re.fullmatch(r"[A-Z][^.]*(\.\w[^.]*)*\.", first), "one sentence"
    assert promise.startswith("Preserves training" if cls.preserves else "Changes training")
    assert source.startswith("Source: ")


def test_the_page_lists_every_public_name_with_what_it_does() -> None:
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    missing = [name for name in bc.__all__ if f"`bc.{name}" not in text]
    assert not missing
    bare = re.findall(r"^(#{3,4} .*)\n+(?=#|\Z)", text, re.MULTILINE)
    assert not bare, "what has no docstring"
    assert not re.search(r":\w+:`|``\w", text), "reStructuredText is left"


def test_the_module_shows_its_public_names_alone() -> None:
    assert dir(bc) == sorted(bc.__all__)
    assert all(getattr(bc, name) is not None for name in dir(bc))
    assert bc.__version__ == version("boost-compile")


def test_what_save_writes_load_takes() -> None:
    assert bc.Session.load is bc.Session.load_state
