"""The original that judges a program, as far as it can run, behind the passes that make another network."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.core.program import Program
from ...passes.framework.base import Pass
from ...passes.framework.manager import compile_program
from ...passes.legalize import Legalize
from .promises import LEGALIZE, Promises


def base_of(original: Program, promises: Promises, target: str) -> Program:
    """The original, or what is left of it after the passes that make another network of it, and in primitives that can
    be run here."""
    return _compiled(original, [p for p in promises.passes if p in promises.network], promises, target)


def runnable(original: Program, promises: Promises, target: str) -> Program:
    """The original itself, in primitives that can be run here."""
    return _compiled(original, [], promises, target)


def _compiled(original: Program, passes: Sequence[Pass], promises: Promises, target: str) -> Program:
    legalizing = promises.having(LEGALIZE) if Legalize.needed_for(original, target) else []
    if not passes and not legalizing:
        return original
    return compile_program(original, [*passes, *legalizing], allow_no_match=True, reproducer_directory=None)
