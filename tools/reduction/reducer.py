"""The reduction: passes, then pieces from coarse to fine, then shapes and data; over again while that helps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ...ir.core.errors import VerifyError
from ...ir.core.program import Program
from ...ir.text import parse_program, print_program
from ...ir.verify.verifier import verify
from ...passes.framework.base import Pass
from ...passes.framework.pipeline import print_pipeline
from .checks import Check
from .cuts import CUTS, Cut, Piece, tidy
from .minimize import minimize
from .simplifications import simplifications, zero_data

Progress = Callable[[str, int, int, int], None]
"""Called after each test: what is being tried, tests so far, the nodes and the state variables that are left."""


class _Spent(Exception):
    """As many tests were made as are allowed."""


@dataclass
class Reduction:
    """The smallest program found that shows ``failure``, with the passes it needs. ``spent``: the limit of tests was
    reached, so it might be smaller still."""

    program: Program
    passes: list[Pass]
    failure: str
    tests: int = 0
    spent: bool = False


def reduce(
    program: Program,
    check: Check,
    *,
    max_tests: int = 1000,
    progress: Progress = lambda what, tests, nodes, state: None,
) -> Reduction:
    """Reduces a copy. Every candidate must be a valid program, unless the original is not, and is printed and read
    before it is tested, since text is what comes out. Deterministic, as far as the check is. OptionError if the program
    does not fail."""
    found = Reduction(program.copy(), list(check.passes), check.learn(program))
    reducer = _Reducer(found, check, max_tests, _verifies(program), progress)
    try:
        reducer.run()
    except _Spent:
        found.spent = True
    return found


def _verifies(program: Program) -> bool:
    try:
        verify(program)
    except VerifyError:
        return False
    return True


class _Reducer:
    def __init__(self, found: Reduction, check: Check, max_tests: int, strict: bool, progress: Progress):
        self._found, self._check, self._max, self._strict, self._progress = found, check, max_tests, strict, progress
        self._tried: set[tuple[str, str]] = set()

    def run(self) -> None:
        # First, because all that follows writes and reads the weights otherwise.
        self._guarded(partial(self._simpler, "data", zero_data))
        while True:
            before = self._size()
            if len(self._found.passes) > 1:
                minimize(self._found.passes, lambda some: self._try("passes", self._found.program, list(some)))
            for name, cut in CUTS.items():
                self._cut(name, cut)
            for name, simplify in list(simplifications(self._found.program)):
                self._guarded(partial(self._simpler, name, simplify))
            if self._size() == before:
                return

    def _size(self) -> tuple[int, ...]:
        program = self._found.program
        data = program.state_bytes
        return len(self._found.passes), program.total_nodes(), len(program.state), data

    def _cut(self, name: str, cut: Cut) -> None:
        """Leaves out as many pieces as possible of those that the program has now."""
        pieces_of, drop = cut
        base = self._found.program
        pieces = pieces_of(base)

        def fails(kept: Sequence[Piece]) -> bool:
            candidate = base.copy()
            drop(candidate, set(pieces).difference(kept))
            tidy(candidate)
            return self._try(name, candidate, self._found.passes)

        minimize(pieces, lambda kept: self._guarded(lambda: fails(kept)))

    def _simpler(self, name: str, simplify: Callable[[Program], None]) -> bool:
        candidate = self._found.program.copy()
        simplify(candidate)
        return self._try(name, candidate, self._found.passes)

    def _guarded(self, attempt: Callable[[], bool]) -> bool:
        """False for what cannot be done: a cut that leaves no program is no candidate, whatever it raises."""
        try:
            return attempt()
        except _Spent:
            raise
        except Exception:
            return False

    def _try(self, what: str, candidate: Program, passes: list[Pass]) -> bool:
        """Tests a candidate that was not tested before, and keeps it if it shows the failure."""
        found = self._found
        text = print_program(candidate)
        key = (print_pipeline(passes), hashlib.sha256(text.encode()).hexdigest())
        if key in self._tried:
            return False
        self._tried.add(key)
        candidate = parse_program(text)
        if self._strict and not _verifies(candidate):
            return False
        if found.tests >= self._max:
            raise _Spent
        found.tests += 1
        shows = self._check.shows(found.failure, candidate, passes)
        if shows:
            found.program, found.passes = candidate, passes
        program = found.program
        self._progress(what, found.tests, program.total_nodes(), len(program.state))
        return shows
