"""docs/write-a-pass.md does what it says: its files, installed as its commands install them, pass their own tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from boost_compile.ir.text import parse_program, print_program

import boost_compile as bc
from tests.waiting import PATIENCE

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "write-a-pass.md"
EXAMPLE = ROOT / "examples" / "merge_reshapes"
FILES = re.compile(r"^\*\*\d\. [^`\n]*`([\w.]+)`[^\n]*\n\n```(?:python|toml)\n(.*?)```", re.DOTALL | re.MULTILINE)
COMMANDS = re.compile(r"```sh\n(.*?)```", re.DOTALL)
INSTALL = "pip install -e ."


def blocks() -> dict[str, str]:
    return dict(FILES.findall(PAGE.read_text(encoding="utf-8")))


def test_the_page_shows_the_example() -> None:
    shown = blocks()
    assert set(shown) == {"merge_reshapes.py", "pyproject.toml", "test_merge_reshapes.py"}
    for name, text in shown.items():
        assert text == (EXAMPLE / name).read_text(encoding="utf-8"), f"{name} on the page is not {EXAMPLE / name}"


def test_from_nothing_to_a_tested_pass(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", reason="packages are built without a network, with the setuptools that is here")
    package, installed = tmp_path / "package", tmp_path / "installed"
    package.mkdir()
    for name, text in blocks().items():
        (package / name).write_text(text, encoding="utf-8")
    offline = (
        f"{sys.executable} -m pip install --quiet --no-deps --no-build-isolation --no-index --target {installed} ."
    )
    (script,) = COMMANDS.findall(PAGE.read_text(encoding="utf-8"))
    lines = [line.partition("#")[0].strip() for line in script.splitlines()]
    assert lines[0] == INSTALL
    environment = {
        **os.environ,
        "PYTHONPATH": str(installed),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    outputs = []
    for line in [offline, *lines[1:]]:
        done = subprocess.run(
            line, shell=True, cwd=package, env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        outputs.append(done.stdout)
    assert "merge-reshapes" in outputs[1]
    assert re.search(r"\b4 passed|\.{4} ", outputs[2])


def test_the_pass_of_contributing_scales_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block of CONTRIBUTING.md as a module of passes/."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    module = ModuleType("boost_compile.passes.scale_gradients")
    module.__package__ = "boost_compile.passes"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[0], vars(module))
    step = (ROOT / "tests/passes/gradient_accumulation.ir").read_text(encoding="utf-8")
    compiled = bc.compile(parse_program(step), [module.ScaleGradients(factor=0.5)])
    (report,) = compiled.reports
    assert (report.name, report.matched, report.changed) == ("scale-gradients", 1, 1)
    assert "Mul(%g, float32[]<0.5>)" in print_program(compiled, annotations=False)
