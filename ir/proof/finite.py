"""Where a program tests its gradients for finite values: what is true in each case, and whether all are looked at."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ..core.types import TensorType
from ..symbolic.terms import VARIES, Terms
from .expected import Expected
from .reals import Reals
from .sides import Sides
from .verdict import STATE, UNPROVED, Verdict


@dataclass(frozen=True)
class Tests:
    """``own``: the tests that only the program makes. ``finite``: what is true where all that is tested is finite, and
    ``spoiled`` where something is not, for each conjunction that is no part of another. ``values``: what each test
    looks at."""

    own: set[int]
    finite: dict[int, bool]
    spoiled: list[dict[int, bool]]
    values: dict[int, int]


def tests_of(terms: Terms, reals: Reals, known: Collection[int], *, pure: bool) -> Tests | None:
    """The tests that ``reals`` met, but for those that are ``known`` of the original, and what they lead to. ``pure``:
    in conjunctions of nothing but tests."""
    tested = reals.conditions.tests
    whole = {t for t in tested if terms.name(t) == "ReduceAll" or terms.shapes[t] == ()}
    own = whole.difference(known)
    if not own:
        return None
    joined = {f: leaves(terms, f) for f in {*reals.forms.values(), *own} if f in own or terms.name(f) == "LogicalAnd"}
    joined = {f: of for f, of in joined.items() if of <= own or not pure}
    roots = [f for f, of in joined.items() if of & own and not any(of < other for other in joined.values())]
    return Tests(own, dict.fromkeys(own, True), [{f: False} for f in roots], {t: tested[t] for t in whole})


def leaves(terms: Terms, form: int) -> frozenset[int]:
    """The tests that a form joins, itself if it joins none."""
    return frozenset(terms.arguments[form]) if terms.name(form) == "LogicalAnd" else frozenset([form])


def untested(
    sides: Sides, expected: Expected, tests: Tests, reals: Reals, graph: str, *, averaged: bool
) -> Iterator[Verdict]:
    """Each gradient must be part of a value that is tested. ``averaged``: its mean must be."""
    terms, mean = sides.terms, expected.mean
    atoms = {a for x in tests.values.values() for m in reals.polynomial_of(x) for a, _ in m}
    taken = set(terms.below(mean.states.values(), {})) if averaged else set()
    for seam, node in mean.seams.items():
        is_count = isinstance(node.type, TensorType) and not node.type.dtype.is_float
        if is_count or not terms.traits[seam] & VARIES:
            continue
        atom: int | None = seam
        if averaged:
            of = sides.mean if sides.weight is None else sides.weighted
            atom = sides.ranks.mean(seam) if sides.ranks else of(seam)
        if atom not in atoms and (atom in taken or not averaged):
            detail = "none of the values that are tested is proved to hold this gradient, which may overflow"
            yield Verdict(STATE, node.name, UNPROVED, (), detail, graph, seam)
