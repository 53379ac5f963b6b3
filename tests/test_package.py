"""The installed package: what an index shows of it, and that type checkers find it."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from importlib.metadata import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_an_index_shows_who_and_what() -> None:
    shown = metadata("boost-compile")
    assert shown["Author"]
    assert shown["License-Expression"] == "Apache-2.0"
    versions = {c.rpartition(" ")[2] for c in shown.get_all("Classifier") if c.startswith("Programming Language")}
    assert {"3.10", "3.11", "3.12"} <= versions


def test_no_link_of_the_description_needs_the_repository() -> None:
    description = (ROOT / "docs/package.md").read_text()
    assert metadata("boost-compile").get_payload().strip() == description.strip()
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert [link for link in links if not link.startswith("https://")] == []


def test_type_checkers_and_python_find_an_editable_install(tmp_path: Path) -> None:
    """A plain path in a .pth file is what type checkers follow; an import hook is not."""
    site = Path(sysconfig.get_path("purelib"))
    lines = [line.strip() for file in site.glob("*boost_compile*.pth") for line in file.read_text().splitlines()]
    if not lines:
        pytest.skip("not an editable install")
    folders = [Path(line) for line in lines if not line.startswith("import ")]
    assert any((folder / "boost_compile/ir/core/errors.py").is_file() for folder in folders)
    assert any((folder / "boost_compile/py.typed").is_file() for folder in folders)
    code = "import boost_compile.ir.core.errors as e, boost_compile as b; print(e.__file__, len(b.__path__))"
    for where in (tmp_path, ROOT):
        done = subprocess.run([sys.executable, "-c", code], cwd=where, capture_output=True, text=True, check=True)
        file, count = done.stdout.split()
        assert Path(file).resolve() == (ROOT / "ir/core/errors.py").resolve()
        assert count == ("1" if where == tmp_path else "2")
