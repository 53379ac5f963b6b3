"""The original that judges a program, as far as it can run, behind the passes that make another network."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.core.program import Program
from ...passes.framework.base import Pass
from ...passes.framework.manager import compile_program
from ...passes.legalize import Legalize
from .promises import LEGALIZE, MIXED, Promises


def base_of(original: Program, promises: Promises, target: str) -> Program:
    """The original, or what is left of it after the passes that make another network of it, and in primitives that can
    be run here."""
    return _compiled(original, list(map(_by_itself, promises.network)), promises, target)


def without(original: Program, promises: Promises, target: str, name: str) -> Program:
    """The same without the pass of that name."""
    passes = [p for p in map(_by_itself, promises.network) if p.name != name]
    return _compiled(original, passes, promises, target)


def runnable(original: Program, promises: Promises, target: str) -> Program:
    """The original itself, in primitives that can be run here."""
    return _compiled(original, [], promises, target)


def _by_itself(p: Pass) -> Pass:
    """The pass without what it would bring along, which is judged too."""
    if p.name == MIXED and p.options()["level"] != "O0":
        return type(p)(**{**p.options(), "loss_scale": False})
    return p


def _compiled(original: Program, passes: Sequence[Pass], promises: Promises, target: str) -> Program:
    legalizing = promises.having(LEGALIZE) if Legalize.needed_for(original, target) else []
    if not passes and not legalizing:
        return original
    return compile_program(original, [*passes, *legalizing], allow_no_match=True, reproducer_directory=None)
