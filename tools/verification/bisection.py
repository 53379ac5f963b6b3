"""Which pass is guilty: the first one after which a property fails that held before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.core.errors import Error
from ...ir.core.program import Program
from ...passes.framework.base import Pass
from ...passes.framework.manager import InternalError, compile_program
from .report import FAILED, Guilty, Result

Check = Callable[[Program], Sequence[Result]]


def find_guilty(original: Program, passes: Sequence[Pass], check: Check) -> Guilty:
    """Compiles the original with longer and longer beginnings of the pipeline, and checks each. ``check`` gives the
    failures of a program."""
    for number, p in enumerate(passes, 1):
        try:
            program = compile_program(original, list(passes[:number]), allow_no_match=True, reproducer_directory=None)
        except (Error, InternalError) as error:
            note = f"compiling anew fails: {error}"
            return Guilty(p.name, number, len(passes), Result("compilation", FAILED, note), note)
        failures = check(program)
        if failures:
            return Guilty(p.name, number, len(passes), failures[0])
    return Guilty("", 0, len(passes), Result("", ""), "the same pipeline, compiled now, makes a program that is right")
