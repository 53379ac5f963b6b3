"""Views of a pipeline at work: IR before and after a pass, the difference, and a bisect limit.

LLVM's conventions: everything goes to stderr, dumps are headed ``// -----// IR Dump After X //----- //`` so that
pipeline viewers find them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from ...ir.core.program import Program
    from .base import Pass

Selection = bool | str | Collection[str]
"""True for all passes, or the names of some (one name may stand alone)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrumentation:
    """``opt_bisect_limit`` runs the first so many passes only, and says which it ran and which it skipped.

    ``judge`` is given the program after each pass, and may raise an error. ``annotations``: whether dumps carry scopes
    and origins. ``stream`` is stderr unless given.
    """

    print_ir_before: Selection = False
    print_ir_after: Selection = False
    print_ir_diff: Selection = False
    opt_bisect_limit: int | None = None
    annotations: bool = True
    judge: Callable[[Pass, Program], None] | None = None
    stream: TextIO | None = None

    @property
    def looks(self) -> bool:
        """Whether anything here looks at the program between passes."""
        views = (self.print_ir_before, self.print_ir_after, self.print_ir_diff, self.judge)
        return any(views) or self.opt_bisect_limit is not None

    def selected_names(self) -> set[str]:
        """Every pass name that a selection spells out."""
        names: set[str] = set()
        for selection in (self.print_ir_before, self.print_ir_after, self.print_ir_diff):
            if not isinstance(selection, bool):
                names.update([selection] if isinstance(selection, str) else selection)
        return names

    def may_run(self, p: Pass, number: int) -> bool:
        """Whether the bisect limit lets the pass with this number (from 1) run."""
        if self.opt_bisect_limit is None:
            return True
        runs = number <= self.opt_bisect_limit
        self._say(f"BISECT: {'running' if runs else 'NOT running'} pass ({number}) {p.name}")
        return runs

    def before(self, p: Pass, program: Program) -> Program | None:
        """Called before a pass; what is returned is handed to :meth:`after`."""
        if _selects(self.print_ir_before, p):
            self._dump("IR Dump Before", p, self._text(program))
        return program.copy() if _selects(self.print_ir_diff, p) else None

    def after(self, p: Pass, program: Program, before: Program | None) -> None:
        if _selects(self.print_ir_after, p):
            self._dump("IR Dump After", p, self._text(program))
        if before is not None:
            from ...ir.analysis.compare.diff import diff
            from ...ir.analysis.compare.diff_text import diff_text

            # Not a diff of texts: a pass that cuts a graph in two, or renumbers tokens, changes nearly every line.
            self._dump("IR Difference After", p, diff_text(diff(before, program)) or "(no change)")
        if self.judge is not None:
            self.judge(p, program)

    def _text(self, program: Program) -> str:
        from ...ir.text import print_program

        return print_program(program, annotations=self.annotations, resources=False)

    def _dump(self, what: str, p: Pass, text: str) -> None:
        self._say(f"// -----// {what} {p.name} //----- //\n{text.rstrip()}\n")

    def _say(self, text: str) -> None:
        print(text, file=self.stream or sys.stderr, flush=True)


def _selects(selection: Selection, p: Pass) -> bool:
    if isinstance(selection, bool):
        return selection
    return p.name == selection if isinstance(selection, str) else p.name in selection
