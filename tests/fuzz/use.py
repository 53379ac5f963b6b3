"""What the commands do with a program that was read, all in one: nothing of it may fail but with an Error."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from boost_compile.ir.core.errors import Error
from boost_compile.ir.core.program import Program
from boost_compile.ir.files.json_text import json_text
from boost_compile.ir.formats.python.decompile import decompile
from boost_compile.ir.formats.storage.load import load
from boost_compile.ir.formats.storage.save import save
from boost_compile.ir.rewrite.roles import assign_roles
from boost_compile.ir.text import parse_program, print_program
from boost_compile.ir.verify.verifier import verify
from boost_compile.passes.framework.manager import compile_program
from boost_compile.tools.views.analyses import ANALYSES, print_analysis
from boost_compile.tools.views.dot import dot_of
from boost_compile.tools.views.model_explorer import document_of
from boost_compile.tools.views.report import html_of
from boost_compile.tools.views.shown import shown
from boost_compile.tools.views.summary import describe, print_summary
from boost_compile.tools.views.text import text_of

PIPELINES = (
    "",
    "gradient-accumulation{steps=2},overflow-check",
    "common-subexpression-elimination,dead-code-elimination",
)


def spell(program: Program, folder: Path) -> None:
    """Checks, prints and writes what was read: the short way, for many inputs."""
    verify(program)
    text = print_program(program)
    text.encode()
    parse_program(text)
    save(program, folder / "out.mindir")
    load(folder / "out.mindir")


def use(program: Program, folder: Path) -> None:
    """Shows, compiles, saves and reads again. ``folder``: where files may be written."""
    refused: list[Error] = []

    def attempt(step: Callable[..., object], *arguments: object) -> None:
        try:
            step(*arguments)
        except Error as error:
            refused.append(error)

    attempt(assign_roles, program)
    attempt(_show, program, folder)
    attempt(decompile, program)
    for pipeline in PIPELINES:
        attempt(_compile, program, pipeline, folder)
    if refused:
        raise refused[0]


def _show(program: Program, folder: Path) -> None:
    from rich.console import Console

    view = shown(program, "file")
    document = describe(view)
    json.loads(json_text(document))
    out = Console(file=io.StringIO(), highlight=False, width=160)
    print_summary(document, out)
    for format_ in ANALYSES:
        with suppress(Error):  # no training graph, no batch
            print_analysis(view, format_, None, full=True)
    text_of(view, True, data=False).encode()
    dot_of(view).encode()
    json.dumps(document_of(view), ensure_ascii=False).encode()
    html_of(view).encode()


def _compile(program: Program, pipeline: str, folder: Path) -> None:
    compiled = compile_program(program, pipeline, allow_no_match=True, reproducer_directory=None)
    for name in ("out.boost", "out.mindir", "out.txt"):
        save(compiled, folder / name)
        load(folder / name)
    parse_program((folder / "out.txt").read_text(encoding="utf-8"))
