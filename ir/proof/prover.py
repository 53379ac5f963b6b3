"""Proves that a program trains as the training graph that it was made from, for all inputs, states and numbers of
micro-batches.

The claim is one of cycles. All but the last micro-batch of a cycle run the network side of the original. The last one
runs the whole original, but its update side takes, for each gradient, the mean over the micro-batches of the cycle. A
cycle of one micro-batch is the original itself. What passes change on purpose is part of the claim
(:mod:`.promises`).
"""

from __future__ import annotations

from fractions import Fraction

from ..core.graph import Graph
from ..core.program import Program
from ..symbolic.execution import Unproved
from ..symbolic.terms import Terms
from . import formulas
from .before import compare_order, compare_start
from .claim import claim_of, of_the_last
from .cycle_end import Scenario, end_of_cycle, judge
from .expected import Expected, expect
from .formulas import rounding
from .micro_batch import micro_batch, note
from .polynomial import Polynomial
from .reals import Reals
from .sides import Sides
from .trust import trusted
from .variants import Frozen, prove_variants
from .verdict import ORDER, STATE, UNPROVED, Proof, Verdict


def prove(original: Program, program: Program) -> tuple[Proof, Terms]:
    """The verdicts, and the terms that they speak of."""
    terms = Terms(rounds=not rounding.asked(program))
    if program.schedule.choice is None:
        return _prove(original, program, terms, "")[0], terms
    return prove_variants(original, program, _prove, terms), terms


def _prove(original: Program, program: Program, terms: Terms, cycles: str) -> tuple[Proof, Frozen]:
    """``cycles``: where the program is a variant of one, the state that counts cycles."""
    proof, frozen = Proof(claim_of(program)), Frozen()
    try:
        compare_order(original, program, proof)
        if unstated := formulas.missing(program):
            raise Unproved(f"pass '{unstated}' changes training on purpose, and no formula says how: law missing")
        compare_start(original, program, proof)
        sides = Sides(original, program, terms, cycles)
        proof.alike = sides.alike
        if sides.averaged:
            proof.besides = of_the_last(sides.graph)
            proof.claim += proof.besides
        expected = expect(sides, proof)
        frozen = expected.frozen
        if sides.averaged or expected.changed.statement is not None:
            proof.trusted.append(trusted(sides.graph, sides.parts))
        _cycle(sides, expected, proof)
    except Unproved as reason:
        _give_up(original, proof, str(reason))
    return proof, frozen


def given_up(original: Program, program: Program, reason: str) -> Proof:
    """A proof that ends before it begins."""
    proof = Proof(claim_of(program))
    _give_up(original, proof, reason)
    return proof


def _give_up(original: Program, proof: Proof, reason: str) -> None:
    known = {(v.what, v.name) for v in proof.verdicts}
    for name in original.state:
        if (STATE, name) not in known:
            proof.verdicts.append(Verdict(STATE, name, UNPROVED, detail=reason))
    if not original.state:
        proof.verdicts.append(Verdict(ORDER, "program", UNPROVED, detail=reason))


def _cycle(sides: Sides, expected: Expected, proof: Proof) -> None:
    """One cycle as the schedule says; :class:`Unproved` for a schedule of another form."""
    schedule, graphs = sides.program.schedule, sides.program.graphs
    if schedule.search is not None:
        raise Unproved("the program searches along a line: law missing for its trials")
    if len(schedule.cycle) > 2 or not any(graphs[e.graph].inputs for e in schedule.cycle):
        raise Unproved("a schedule of this form has no law")
    first, last = schedule.cycle[0], schedule.cycle[-1]
    if sides.alone:
        _self_contained(sides, expected, graphs[first.graph], proof)
        return
    if last.repeat != 1:
        raise Unproved(f"the schedule updates {last.repeat} times a cycle")
    if len(schedule.cycle) == 1 and schedule.flush is None:
        graph = graphs[last.graph]
        proof.updating = [graph.name]
        found = sides.run(graph, sides.start)
        judge(sides, expected, graph, found, Scenario(), proof, adding=set(), complete=True)
        return
    updating = list(dict.fromkeys(name for name in (last.graph, schedule.flush) if name))
    taking = next((g for n, g in graphs.items() if n not in updating and g.inputs), None)
    if taking is None or (len(schedule.cycle) == 2 and first.graph != taking.name):
        raise Unproved("a schedule of this form has no law")
    batch = micro_batch(sides, expected, taking, sides.run(taking, sides.start), proof, {})
    note(sides, expected, batch, taking, updating, proof)
    for name in updating:
        end_of_cycle(sides, expected, graphs[name], batch, proof)


def _self_contained(sides: Sides, expected: Expected, graph: Graph, proof: Proof) -> None:
    """One graph for each micro-batch, which updates where its count says that this is the last one. Before, ``later``
    micro-batches are still to come behind it, at least 1; then none."""
    count, steps = sides.program.schedule.count, sides.alone
    if count is None or count not in sides.program.state:
        raise Unproved("a graph that runs several times a cycle without a count of them")
    so_far: Polynomial = {(): Fraction(steps - 1), ((sides.later, 1),): Fraction(-1)}
    before = {count: Reals(sides.terms).term(so_far, sides.terms.shapes[sides.start[count]])}
    run = sides.run(graph, {**sides.start, **before})
    batch = micro_batch(sides, expected, graph, run, proof, before)
    if batch.dropped is not None:
        raise Unproved("a self-contained program that drops micro-batches has no law")
    note(sides, expected, batch, graph, [graph.name], proof)
    proof.counted = (count, steps)
    end_of_cycle(sides, expected, graph, batch, proof)
