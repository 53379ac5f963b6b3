"""Exports of MindSpore: a file of one as a program, and the complaint where there is none."""

from __future__ import annotations

from pathlib import Path

from ...ir.core.program import Program


def read_export(path: Path) -> Program:
    """The program in a file that goes away."""
    from ...ir.formats.storage.load import load

    program = load(path)
    for variable in program.state.values():
        variable.data.view()  # maps the file
    return program


def first_line(error: Exception) -> str:
    """Of its message; the error's class where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
