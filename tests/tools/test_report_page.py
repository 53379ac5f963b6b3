"""The report as its reader gets it: the file that boost-inspect wrote, opened in a browser."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from boost_compile.tools.compile import command as compile_command
from boost_compile.tools.inspect import command

from tests.browser import Browser, browser, needs_browser

from .support import shell

Exported = Callable[[str], Path]
PASSES = "gradient-accumulation{steps=4},loss-scale{mode=dynamic},overflow-check"
NETWORKS = ["lenet_bn", "gpt_tied_sgd", pytest.param("resnet50", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture
def report(tmp_path: Path, capsys: pytest.CaptureFixture[str], exported: Exported) -> Callable[[str], Path]:
    """Compiles a network and writes the report on it, as a user does."""

    def write(name: str) -> Path:
        program, page = tmp_path / f"{name}.boost", tmp_path / f"{name}.html"
        done = shell(capsys, compile_command, exported(name), "--passes", PASSES, "-q", "-o", program)
        assert done.code == 0, done
        done = shell(capsys, command, program, "--original", exported(name), "-o", page)
        assert (done.code, done.out, done.err) == (0, "", "")
        return page

    return write


def test_the_written_page_runs_the_scripts_that_its_policy_knows(report: Callable[[str], Path]) -> None:
    text = report("lenet_bn").read_text(encoding="utf-8")
    policy = re.search('http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    scripts = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    hashes = [b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert len(hashes) == 4
    assert re.findall("sha256-([^&']*)", policy[1]) == hashes


@needs_browser
@pytest.mark.parametrize("name", NETWORKS)
def test_the_written_page_draws_its_graphs(name: str, window: Browser, report: Callable[[str], Path]) -> None:
    window.open(report(name))
    assert window.errors() == []
    panes = window.run(
        "return [...document.querySelectorAll('.pane')].map((p) => p.querySelectorAll('svg .box').length)"
    )
    assert len(panes) == 2
    assert min(panes) > 5
    assert window.run("return document.querySelectorAll('#memory-plot canvas').length") == 1
