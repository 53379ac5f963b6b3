"""docs/passes.md, the page of the passes and their options, says what the passes do."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from boost_compile.ir.core.errors import Error, OptionError
from boost_compile.ir.text import print_program
from boost_compile.passes import REGISTRY, compile_program
from boost_compile.passes.framework.options import REQUIRED, declared_options
from boost_compile.passes.framework.registry import CLASSES

from tests.material import material

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    sys.path.insert(0, str(DOCS))
    try:
        return runpy.run_path(str(DOCS / "make_passes.py"))
    finally:
        sys.path.remove(str(DOCS))


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_pass_takes_what_the_page_lists(name: str, script: dict[str, Any]) -> None:
    """What it says of each option: the default, which is the same as nothing, and the bounds."""
    cls = REGISTRY[name]
    assert script["section"](cls, "").rstrip() in (DOCS / "passes.md").read_text(encoding="utf-8")
    defaults = {n: o.default for n, o in declared_options(cls).items()}
    declared = declared_options(cls)
    required = {n: ("x",) if declared[n].is_list else "x" for n, default in defaults.items() if default is REQUIRED}
    for option in defaults:
        with pytest.raises(OptionError, match=f"pass '{name}': option '{option}'"):
            cls(**(required | {option: object()}))
    if not required:
        assert _compiled(name, {}) == _compiled(name, defaults)


def _compiled(name: str, options: dict[str, Any]) -> str:
    try:
        program = compile_program(material("mlp"), [REGISTRY[name](**options)], reproducer_directory=None)
    except Error as error:
        return str(error)
    return print_program(program)
