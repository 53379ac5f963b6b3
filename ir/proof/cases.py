"""One case of a proof: what a graph of the program leaves and returns is compared with what it should."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..analysis.training.results import names_of_results
from ..core.graph import Graph
from ..core.names import LOSS_SCALE, OVERFLOW, SKIPPED_CYCLES
from ..core.types import DType
from ..symbolic.execution import WORLD, Outcome
from . import formulas
from .formulas import schedule
from .formulas.records import updates_by_condition
from .numbers import Numbers, Val, flat
from .prime_field import exact
from .verdict import OWN, PURPOSE, REALS, RESULT, SAME, STATE, UNPROVED, Proof, Verdict
from .window import Window


@dataclass(frozen=True)
class Wanted:
    """What states should hold, by name, and the original's step that says so, by the numbers ``of`` its terms;
    ``gives``: results that formulas give; ``rules``: what the program's own states should hold, one of several."""

    states: Mapping[str, Val]
    step: Outcome
    of: Numbers
    gives: Mapping[str, Val] = field(default_factory=dict)
    rules: Mapping[str, list[Val]] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """``graph`` left and returned ``found``, by ``numbers``; ``where`` in words. ``plain``: the original's step where a
    micro-batch is a window. ``by``: the passes that change a state on purpose. ``overflow``: whether a gradient is not
    finite; None where nobody asks. ``ended``: whether this ends a window. ``frozen``: states that stay on purpose, and
    by which pass; ``adding``: the program's own states that micro-batches add to."""

    window: Window
    proof: Proof
    graph: Graph
    found: Outcome
    numbers: Numbers
    plain: Outcome | None
    by: Mapping[str, tuple[str, ...]]
    frozen: Mapping[str, str]
    adding: Iterable[str] = ()
    where: str = ""
    overflow: bool | None = None
    lost: bool = False
    ended: bool = True

    def say(
        self, what: str, name: str, kind: str, detail: str, found: int | None = None, expected: int | None = None
    ) -> None:
        self.proof.verdicts.append(Verdict(what, name, kind, detail.strip(), self.graph.name, expected, found))

    def compare(self, wanted: Wanted, *, complete: bool = False) -> None:
        """``complete``: the graph must return all that the original does."""
        state = self.window.program.state
        for name in (*self.window.original.state, WORLD):
            if name not in state and name != WORLD:
                continue
            shown = "what the graph prints" if name == WORLD else name
            if flat(self.numbers.of(self.found.states[name])) != flat(wanted.states[name]):
                where = self.where or schedule.uncounted(self.window.original, self.window.program)
                self._differ(STATE, shown, wanted, wanted.step.states[name], self.found.states[name], where)
            elif self.ended and self.overflow is not True and name != WORLD:
                self._agree(STATE, name, wanted.step.states[name], self.found.states[name])
        self._results(wanted, complete)
        if self.ended:
            for name in self.window.own:
                self._own(name, wanted)

    def _agree(self, what: str, name: str, expected: int, found: int) -> None:
        window, by = self.window, self.by.get(name, ()) if what == STATE else ()
        if what == STATE and name in self.frozen:
            by = (*by, self.frozen[name])
        if what == RESULT or expected != window.start.get(name):
            by = tuple(dict.fromkeys((*by, *formulas.of_network(window.program))))
        detail = f"by {', '.join(by)} {self.where}" if by else self.where
        known = {expected} if self.plain is None else {expected, self.plain.states.get(name, expected)}
        if what == RESULT and self.plain is not None:
            known |= set(self.plain.result)
        same = found in known and not by
        self.say(what, name, PURPOSE if by else SAME if same else REALS, "" if same else detail, found, expected)

    def _differ(self, what: str, name: str, wanted: Wanted, expected: int, found: int, where: str) -> None:
        a, b = first_difference(wanted.of, expected, self.numbers, found)
        self.say(what, name, UNPROVED, where, b, a)

    def _results(self, wanted: Wanted, complete: bool) -> None:
        window = self.window
        named, have = (_named(g, r) for g, r in ((window.graph, wanted.step.result), (self.graph, self.found.result)))
        for name in named:
            if complete and name not in have:
                self.say(RESULT, name, UNPROVED, "the program returns it no more")
        for name, t in have.items():
            value = flat(self.numbers.of(t))
            if name in named:
                if window.terms.heads[named[name]][0] == "left out":
                    continue
                if value == flat(wanted.of.of(named[name])):
                    self._agree(RESULT, name, named[name], t)
                else:
                    self._differ(RESULT, name, wanted, named[name], t, self.where)
                continue
            allowed = self._allowed(name, wanted)
            if window.alone:  # a file of one graph does not name what passes return
                allowed = [v for n in wanted.gives for v in self._allowed(n, wanted)]
                allowed += self._allowed(LOSS_SCALE, wanted) + self._allowed(OVERFLOW, wanted)
                allowed += self._allowed(SKIPPED_CYCLES, wanted)
                allowed += [] if self.ended else [exact(0), False]  # no update, so nothing to say of it
            if value in map(flat, allowed):
                self.say(RESULT, name, OWN, self.where or "as its states say", t)
            else:
                self.say(RESULT, name, UNPROVED, f"no law says what it should be {self.where}", t)

    def _allowed(self, name: str, wanted: Wanted) -> list[Val]:
        """What a result that passes add may be: the loss scale of the step, whether a gradient overflowed, how many
        updates in a row were skipped."""
        window = self.window
        if name == LOSS_SCALE:
            return [self.numbers.of(window.start[scale]) for scale in window.scales]
        if name == OVERFLOW:
            unknown = self.overflow is None and not self.lost
            return [] if unknown else [bool(self.overflow or self.lost)]
        if name == SKIPPED_CYCLES:
            state = window.program.state
            counts = [n for n in window.own if state[n].role == "counter" and state[n].dtype is DType.INT32]
            return [self.numbers.of(self.found.states[n]) for n in counts]
        return [wanted.gives[name]] if name in wanted.gives else []

    def _own(self, name: str, wanted: Wanted) -> None:
        """The program's own states: sums are 0 again, counts and loss scales follow their rules."""
        window, t = self.window, self.found.states[name]
        value = flat(self.numbers.of(t))
        rules = wanted.rules.get(name, [])
        if name in self.adding:
            right, detail = value == flat(exact(0)), "0 at the end of each window"
            wrong = "it is not 0 again after the update"
        elif rules:
            right = value in map(flat, rules)
            detail = "counts windows" if name == window.cycles else f"by its rule {self.where}"
            wrong = f"it does not follow its rule {self.where}"
        else:
            right, detail = value == flat(self.numbers.of(window.start[name])), "left as it is"
            wrong = f"no law says what it should hold {self.where}"
            if name in window.monitors:
                right, detail = True, "measures: nothing else takes it"
            elif not right and window.program.state[name].role == "carried":
                right, detail = True, "set by each micro-batch"
        if right:
            self.say(STATE, name, OWN, detail, t)
        else:
            self.say(STATE, name, UNPROVED, self._unknown() or wrong, t)

    def _unknown(self) -> str:
        """The reason where the original skips updates, and nothing tells when."""
        original = self.window.original
        weights = [n for n, v in original.state.items() if v.role == "weight"]
        conditional = (updates_by_condition(g, weights) for g in original.graphs.values())
        if self.overflow is not None or not any(conditional):
            return ""
        return "the original updates under a condition of its own, which is no test for finite gradients: law missing"


def first_difference(wanted: Numbers, a: int, mine: Numbers, b: int) -> tuple[int, int]:
    """The first pair of terms, from the top down, that differ by more than by one of their arguments."""
    heads, arguments = wanted.terms.heads, wanted.terms.arguments
    while heads[a] == heads[b] and len(arguments[a]) == len(arguments[b]):
        pairs = list(zip(arguments[a], arguments[b], strict=True))
        differ = [(x, y) for x, y in pairs if flat(wanted.of(x)) != flat(mine.of(y))]
        if len(differ) != 1:
            break
        ((a, b),) = differ
    return a, b


def _named(graph: Graph, result: list[int]) -> dict[str, int]:
    return dict(zip(names_of_results(graph, len(result)), result, strict=False))
