"""One case of a proof: what a graph of the program leaves in the original's states is compared with what it should."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from ..core.graph import Graph
from ..symbolic.execution import WORLD, Outcome
from ..symbolic.terms import Terms
from . import formulas
from .expected import Expected
from .formulas import freeze, schedule
from .reals import Reals
from .sides import Sides
from .verdict import PURPOSE, REALS, RESULT, SAME, STATE, UNPROVED, Proof, Verdict


@dataclass(frozen=True)
class Case:
    """``graph`` left and returned ``found``. ``reals``: what is equal here, ``where`` in words. ``overflow``: whether a
    gradient is not finite; None where nobody asks. ``lost``: some micro-batches of the cycle were dropped."""

    sides: Sides
    expected: Expected
    proof: Proof
    graph: Graph
    found: Outcome
    reals: Reals
    where: str = ""
    overflow: bool | None = None
    lost: bool = False

    def say(
        self, what: str, name: str, kind: str, detail: str, found: int | None = None, expected: int | None = None,
        laws: Collection[str] = (),
    ) -> None:  # fmt: skip
        verdict = Verdict(what, name, kind, tuple(sorted(laws)), detail.strip(), self.graph.name, expected, found)
        self.proof.verdicts.append(verdict)

    def equal(self, a: int, b: int) -> bool:
        return a == b or self.reals.form(a) == self.reals.form(b)

    def states(self, wanted: Outcome, where: str, *, agreed: bool = True) -> None:
        """The original's states. ``agreed``: the verdicts name those that are as they should be, too."""
        for name in (*self.sides.compared, WORLD):
            a, b = wanted.states[name], self.found.states[name]
            if not self.equal(a, b):
                self.differ(STATE, "what the graph prints" if name == WORLD else name, a, b, where)
            elif agreed and name != WORLD:
                self.agree(STATE, name, a, b)

    def agree(self, what: str, name: str, a: int, b: int) -> None:
        sides, changed = self.sides, self.expected.changed
        by = changed.states.get(name, ()) if what == STATE else ()
        if what == STATE and name in self.proof.frozen:
            variable = sides.original.state.get(name)
            lost = self.expected.lost.holds(variable, name)
            weight = variable.weight if variable is not None and variable.weight else name
            by = (*by, freeze.by(sides.program, weight) if lost else freeze.PASS)
        moves = what == RESULT or a not in (sides.terms.find(("state", name)), sides.kept)
        if moves:
            by = tuple(dict.fromkeys((*by, *formulas.of_network(sides.program))))
        if a == b and not by:
            self.say(what, name, SAME, "", b, a, ("draws",) if sides.alike else ())
            return
        laws = self.reals.laws([a, b]) | (self._of_cycles if sides.averaged else set())
        detail = f"by {', '.join(by)} {self.where}" if by else self.where
        self.say(what, name, PURPOSE if by else REALS, detail, b, a, laws)

    def differ(self, what: str, name: str, a: int, b: int, where: str) -> None:
        one, other = first_difference(self.sides.terms, self.reals.form(a), self.reals.form(b))
        self.say(what, name, UNPROVED, where or schedule.uncounted(self.sides.original, self.sides.program), other, one)

    @cached_property
    def _of_cycles(self) -> set[str]:
        """The laws that every state takes which a cycle updates."""
        scaled = any(scales for adds in self.proof.adds.values() for *_, scales in adds)
        weighted = self.sides.weight is not None
        return {"induction", "mean", *(["linear"] if scaled else []), *(["weights"] if weighted else [])}


def first_difference(terms: Terms, a: int, b: int) -> tuple[int, int]:
    """The first pair of terms, from the top down, that differ by more than by one of their arguments."""
    while True:
        if terms.heads[a] != terms.heads[b] or len(terms.arguments[a]) != len(terms.arguments[b]):
            return a, b
        pairs = [(x, y) for x, y in zip(terms.arguments[a], terms.arguments[b], strict=True) if x != y]
        if len(pairs) != 1:
            return a, b
        a, b = pairs[0]
