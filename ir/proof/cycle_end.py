"""The graph that ends a cycle: what it finds when it begins, and what it does, by cases.

Where a cycle has N micro-batches, N stays a symbol. By induction the program's own states hold N times the mean of
what a micro-batch adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from ..core.graph import Graph
from ..symbolic.execution import WORLD, Outcome, Unproved
from ..symbolic.terms import VARIES
from .case import Case
from .expected import Expected
from .finite import leaves, tests_of, untested
from .micro_batch import MicroBatch
from .own_states import compare_own_states, follows_updates
from .polynomial import Polynomial, add, times
from .reals import Reals
from .returned import compare_results
from .sides import Sides
from .verdict import Proof


@dataclass(frozen=True)
class Scenario:
    """How a cycle went before its update: the numbers of micro-batches that count (``kept``) and that were dropped
    (``gone``), 0 or a symbol, and what the last one is that the updating graph takes itself: 1 kept, -1 dropped, 0
    none. ``still``: nothing is to move."""

    where: str = ""
    kept: int | None = None
    gone: int | None = None
    last: int = 0
    truths: Mapping[int, bool] = field(default_factory=dict)

    @property
    def lost(self) -> bool:
        return self.gone is not None

    @property
    def still(self) -> bool:
        return self.lost and self.kept is None

    @property
    def positive(self) -> tuple[int, ...]:
        return tuple(n for n in (self.kept, self.gone) if n is not None)


def end_of_cycle(sides: Sides, expected: Expected, graph: Graph, batch: MicroBatch, proof: Proof) -> None:
    """Runs the graph at the end of a cycle, in each way that it may have gone."""
    takes, adding = bool(graph.inputs), batch.adding
    for scenario in _scenarios(sides, batch, takes):
        states: dict[str, int] = {WORLD: sides.world() if takes else batch.left[WORLD]}
        for name, symbol in sides.start.items():
            if name in adding:
                states[name] = _total(sides, name, batch, scenario)
            else:
                states[name] = symbol if takes else batch.left[name]
            if name not in sides.original.state and name not in adding and states[name] != symbol:
                states[name] = batch.reals.form(states[name])
        judge(sides, expected, graph, sides.run(graph, states), scenario, proof, adding=adding)


def _scenarios(sides: Sides, batch: MicroBatch, takes: bool) -> Iterator[Scenario]:
    """``takes``: the graph takes the last micro-batch itself."""
    n, d = sides.kept, sides.gone
    if batch.dropped is None or batch.tests is None:
        yield Scenario("", n, None, int(takes))
        return
    finite, spoiled = (batch.tests.finite, batch.tests.spoiled[0]) if takes else ({}, {})
    yield Scenario("where all micro-batches are kept", n, None, int(takes), finite)
    yield Scenario("where some are kept", n, d, int(takes), finite)
    if takes:
        yield Scenario("where some are kept", n, d, -1, spoiled)
    yield Scenario("where none is kept", None, d, -int(takes), spoiled)


def _total(sides: Sides, name: str, batch: MicroBatch, scenario: Scenario) -> int:
    """What the state holds when the update begins: so many times the mean of what a micro-batch adds. An updating
    graph that takes the last micro-batch by itself begins without what that one adds."""
    terms, total = sides.terms, Polynomial()
    for growth, number, last in (
        (batch.kept[name], scenario.kept, scenario.last == 1),
        ((batch.dropped or {}).get(name), scenario.gone, scenario.last == -1),
    ):
        for monomial, c in (growth or {}).items():
            varying = tuple((a, e) for a, e in monomial if terms.traits[a] & VARIES)
            fixed = tuple((a, e) for a, e in monomial if not terms.traits[a] & VARIES)
            if any(terms.heads[a][0] == "state" and terms.heads[a][1] not in sides.original.state for a, _ in fixed
                   if a not in sides.scales):  # fmt: skip
                raise Unproved(f"what is added to '{name}' depends on another state of the program")
            mean = fixed
            if varying:
                shape = max((terms.shapes[a] or () for a, _ in varying), key=len)
                made = sides.mean(Reals(terms).term({varying: Fraction(1)}, shape))
                mean = times(fixed, ((made, 1),))
            if number is not None and sides.alone:
                add(total, mean, c * sides.alone)
            elif number is not None:
                add(total, times(mean, ((number, 1),)), c)
            if last:
                add(total, monomial, -c)
    return Reals(terms).term(total, terms.shapes[sides.start[name]])


def judge(
    sides: Sides, expected: Expected, graph: Graph, found: Outcome, scenario: Scenario, proof: Proof, *,
    adding: set[str], complete: bool = False,
) -> None:  # fmt: skip
    """Compares what an updating graph did with what it should have; by cases where it tests its gradients.
    ``complete``: it must return all that the original does."""

    def reals(truths: Mapping[int, bool] = scenario.truths) -> Reals:
        return sides.reals(expected.opaque, truths, scenario.positive)

    def case(truths: Mapping[int, bool], still: bool, where: str, overflow: bool | None) -> None:
        side = expected.network if still else expected.skipped(sides) if overflow else expected.mean
        one = Case(sides, expected, proof, graph, found, reals(truths), where, overflow, scenario.lost)
        one.states(side, where, agreed=overflow is not True)
        compare_results(one, side, complete=complete)
        compare_own_states(one, adding)

    wanted, mine = reals(), reals()
    for term in (*expected.mean.states.values(), *expected.mean.result):
        wanted.form(term)
    for term in (*(t for name, t in found.states.items() if name not in sides.monitors), *found.result):
        mine.form(term)
    decided = {t for truth in scenario.truths for t in (truth, *leaves(sides.terms, truth))}  # of the last micro-batch
    tests = tests_of(sides.terms, mine, decided.union(wanted.conditions.tests), pure=False)
    itself = tests is None and scenario.gone is None and follows_updates(sides, expected, adding)
    if itself:
        tests = tests_of(sides.terms, wanted, decided, pure=True)
        if tests is not None and not all(
            _stops(sides, expected, reals({**scenario.truths, **t})) for t in tests.spoiled
        ):
            tests = None
    if tests is None:
        case(scenario.truths, scenario.still, scenario.where, True if scenario.still else None)
        return
    proof.tested, proof.itself = True, itself
    if not scenario.still:
        averaged = sides.averaged or sides.ranks is not None
        if not itself:
            proof.verdicts += untested(sides, expected, tests, mine, graph.name, averaged=averaged)
        finite = f"{scenario.where} and all averaged gradients are finite" if scenario.where else ""
        case({**scenario.truths, **tests.finite}, False, finite or "where all gradients are finite", False)
    stops = "the original stops its update itself" if itself else "nothing moves"
    for spoiled in tests.spoiled:
        case({**scenario.truths, **spoiled}, not itself, f"where a gradient is not finite, {stops}", True)


def _stops(sides: Sides, expected: Expected, reals: Reals) -> bool:
    """Whether the original leaves all its weights as they were in a case."""
    weights = [name for name, v in sides.original.state.items() if v.role == "weight"]
    return all(reals.form(expected.updated[name]) == reals.form(sides.start[name]) for name in weights)
