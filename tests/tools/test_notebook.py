"""What a notebook shows: executed by Jupyter, and looked at in a browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.ir.text import parse_program

import boost_compile as bc
from tests.browser import browser, needs_browser
from tests.tools.pages import EVIL, HOSTILE, Page, assert_loads_nothing
from tests.waiting import PATIENCE

CELLS = (
    "import boost_compile as bc\noriginal = bc.load('net.mindir')\n"
    "program = bc.compile(original, 'gradient-accumulation{steps=2}')",
    "program",
    "program.graphs['apply']",
    "bc.diff(original, program)",
    "from boost_compile.tools.verification.report import PASSED, Result, Verification\n"
    "Verification((Result('losses', PASSED, '4 micro-batches'),), '', 0, 2, 'random')",
    "bc.memory(program)",
    "bc.plan_memory(original, 10**9, 8)",
)
WORDS = ("Program net", "Graph apply", "nodes added", "Verified: 1 passed", "for a session on CPU", "of 8 samples")


@needs_browser
def test_a_notebook_shows_summaries_and_drawings(tmp_path: Path, exported: Callable[[str], Path]) -> None:
    pytest.importorskip("nbconvert", reason="Jupyter is not installed (pip install -e '.[dev]')")
    pytest.importorskip("ipykernel")
    (tmp_path / "net.mindir").write_bytes(exported("mlp").read_bytes())
    cells = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
        for i, source in enumerate(CELLS)
    ]
    kernel = {"name": "python3", "display_name": "Python", "language": "python"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "net.ipynb").write_text(json.dumps(notebook))
    command = [sys.executable, "-m", "nbconvert", "--execute", "--to", "html", "net.ipynb"]
    command += [f"--ExecutePreprocessor.startup_timeout={int(PATIENCE)}"]
    quiet = {**os.environ, "JUPYTER_PLATFORM_DIRS": "1", "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=quiet, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    page = tmp_path / "net.html"
    # What Jupyter's own page loads from the network is not there, and is not ours.
    text = re.sub(r'<script[^>]*src="https?://[^>]*>', "", page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")
    for words in WORDS:
        assert words in text, words
    assert len(text) < 2_000_000
    with browser() as window:
        window.open(page)
        assert [e for e in window.errors() if not e.startswith("https://")] == []  # what Jupyter's own page wants
        frames = window.run("return [...document.querySelectorAll('iframe')].map((f) => [f.srcdoc, f.offsetHeight])")
        assert len(frames) == 3  # program, graph, difference
        assert min(height for _, height in frames) > 300
        for source, height in frames:
            (tmp_path / "frame.html").write_text(source, encoding="utf-8")
            window.open(tmp_path / "frame.html", 900, height)
            assert window.errors() == []
            assert window.run("return document.querySelectorAll('svg .box').length") > 3


def test_hostile_names_are_text_in_a_notebook() -> None:
    program = parse_program(HOSTILE)
    fragment = program._repr_html_()
    assert fragment is not None
    page = Page(fragment)
    assert program.name in page.words
    assert [tag for tag, _ in page.tags if tag in ("script", "img")] == []
    (frame,) = [attributes for tag, attributes in page.tags if tag == "iframe"]
    assert frame["sandbox"] == "allow-scripts"
    drawing = str(frame["srcdoc"])
    inner = Page(drawing)
    assert_loads_nothing(inner, scripts=2)
    assert EVIL.split("<")[0] in drawing
    for thing in (*program.graphs.values(), bc.diff(program, program), bc.memory(program)):
        Page(str(thing._repr_html_()))
