"""What the graph does that takes a micro-batch: it runs the network side, and adds to the program's own states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..core.graph import Graph
from ..symbolic.execution import Outcome, Unproved
from ..symbolic.micro_batch_weight import WEIGHT
from .case import Case
from .expected import Expected
from .finite import Tests, tests_of, untested
from .polynomial import Polynomial, add
from .reals import Reals
from .returned import compare_results
from .sides import Sides
from .verdict import STATE, UNPROVED, Added, Proof, Verdict

Growth = dict[str, Polynomial | None]
"""What is added to each of the program's own states; None where nothing is."""


@dataclass(frozen=True)
class MicroBatch:
    """``kept``: what a micro-batch adds that counts, and ``dropped`` one that is dropped, where the program drops some.
    ``left``: what it leaves in all states, by the normal forms of ``reals``."""

    left: Mapping[str, int]
    kept: Growth
    dropped: Growth | None
    tests: Tests | None
    reals: Reals

    @property
    def adding(self) -> set[str]:
        return {name for name, growth in self.kept.items() if growth is not None}


def micro_batch(
    sides: Sides, expected: Expected, graph: Graph, run: Outcome, proof: Proof, before: Mapping[str, int]
) -> MicroBatch:
    """Compares what the graph does to the original's state and returns; by cases where it tests its gradients.
    ``before``: what states hold, where that is known."""
    terms, program = sides.terms, sides.program
    reals = sides.reals(expected.opaque)
    judged = [run.states[name] for name in program.state if name not in sides.monitors]
    forms = [reals.form(t) for t in (*judged, *run.result)]
    tests = tests_of(terms, reals, (), pure=False)
    if sides.alone and tests is not None and not tests.own.intersection(terms.below(forms)):
        tests = None  # they are tests of the update, which does not come to pass
    cases: list[tuple[str, dict[int, bool], bool | None]] = [("", {}, None)]
    if tests is not None:
        proof.verdicts += untested(sides, expected, tests, reals, graph.name, averaged=False)
        if len(tests.spoiled) > 1:
            raise Unproved("gradients are tested apart from each other: law missing")
        cases = [("where all gradients are finite", tests.finite, False), ("where one is not", tests.spoiled[0], True)]
        proof.tested = True
    grown: list[Growth] = []
    for where, truths, spoiled in cases:
        reals = sides.reals(expected.opaque, truths)
        case = Case(sides, expected, proof, graph, run, reals, where, spoiled)
        case.states(expected.network, f"in a micro-batch that does not end the cycle {where}", agreed=False)
        compare_results(case, expected.network, updates=False)
        growth = {name: _growth(sides, name, run.states[name], reals, before) for name in sides.own}
        for name, added in growth.items():
            left = reals.form(run.states[name]) == sides.start[name]
            if added is None and not left and name not in sides.monitors and program.state[name].role != "carried":
                detail = "a micro-batch changes it, and does not add to it"
                case.say(STATE, name, UNPROVED, detail, run.states[name])
        grown.append(growth)
    for name in sides.own:
        if any(g[name] is not None for g in grown):  # what is 0 in one case is still a sum
            for g in grown:
                g[name] = g[name] or {}
    return MicroBatch(run.states, grown[0], grown[1] if len(grown) > 1 else None, tests, reals)


def note(sides: Sides, expected: Expected, batch: MicroBatch, graph: Graph, updating: list[str], proof: Proof) -> None:
    """Notes what a micro-batch adds, for the checker, and that it begins with 0."""
    count, state = sides.program.schedule.count, sides.program.state
    proof.accumulating, proof.updating = graph.name, updating
    adding = {name: growth for name, growth in batch.kept.items() if growth is not None}
    proof.adds = {name: _added(sides, name, growth, expected) for name, growth in adding.items()}
    if count is not None and proof.adds.get(count) != [(None, "1", ())]:
        detail = "the schedule counts micro-batches by it, and a micro-batch does not add 1"
        proof.verdicts.append(Verdict(STATE, count, UNPROVED, (), detail, graph.name))
    if batch.dropped is not None:
        proof.drops = {name: _added(sides, name, batch.dropped[name] or {}, expected) for name in adding}
    for name in adding:
        if not state[name].data.is_zero():
            detail = "it is added to, and does not begin with 0"
            proof.verdicts.append(Verdict(STATE, name, UNPROVED, detail=detail))


def _growth(sides: Sides, name: str, term: int, reals: Reals, before: Mapping[str, int]) -> Polynomial | None:
    """What a micro-batch adds to one of the program's own states; None where it does not add, or only measures."""
    symbol = sides.start[name]
    if term == symbol or name in sides.monitors:
        return None
    p = dict(reals.polynomial(term))
    if sides.alone and reals.form(term) == symbol:
        return None  # only an update changes it
    if name in before:
        for monomial, c in reals.polynomial(before[name]).items():
            add(p, monomial, -c)
        return p
    return p if p.pop(((symbol, 1),), None) == 1 else None


def _added(sides: Sides, name: str, growth: Polynomial, expected: Expected) -> list[Added]:
    adds: list[Added] = []
    for monomial, c in growth.items():
        scales, seam = list[str](), None
        for atom, e in monomial:
            if atom in sides.scales and e > 0:
                scales += [str(sides.terms.heads[atom][1])] * e
            elif atom == sides.weight and e == 1:
                scales.append(WEIGHT)
            elif atom in expected.mean.seams and seam is None and e == 1:
                seam = expected.mean.seams[atom].name
            else:
                raise Unproved(f"what is added to '{name}' is no multiple of a gradient: law missing")
        adds.append((seam, str(c), tuple(scales)))
    return adds
