"""Conditions in normal form, against what they are for numbers."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from fractions import Fraction

import pytest
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.proof.conditions import COMPARISONS, Conditions
from boost_compile.ir.proof.polynomial import Polynomial
from boost_compile.ir.symbolic.terms import Terms

HOLDS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "Greater": operator.gt, "GreaterEqual": operator.ge, "Less": operator.lt, "LessEqual": operator.le,
    "Equal": operator.eq, "NotEqual": operator.ne,
}  # fmt: skip


def test_a_comparison_that_is_decided_holds_for_all_numbers() -> None:
    """Of two numbers of which one is at least 1 and one at least 0, and of a third that nothing is known of."""
    terms, rng = Terms(), random.Random(0)
    n, d, x = (terms.make(("symbol", name), (), ()) for name in "ndx")
    conditions = Conditions(terms, {}, [n], [d])
    decided = 0
    for _ in range(1000):
        sides: list[Polynomial] = [
            {m: Fraction(c) for m in [(), ((n, 1),), ((d, 1),), ((x, 1),)] if (c := rng.randrange(-2, 3))}
            for _ in range(2)
        ]
        name = rng.choice(COMPARISONS)
        found = conditions.compared(name, *sides)
        if found is None:
            continue
        decided += 1
        for given in ({n: 1, d: 0, x: -3}, {n: 5, d: 0, x: 0}, {n: 1, d: 7, x: 4}, {n: 100, d: 1, x: 100}):
            one, other = (sum(c * (given[m[0][0]] if m else 1) for m, c in side.items()) for side in sides)
            assert HOLDS[name](Fraction(one), Fraction(other)) is found, (name, sides, given)
    assert decided > 50


@pytest.fixture
def terms() -> Terms:
    return Terms()


def _of(terms: Terms, name: str, *forms: int, truths: dict[int, bool] | None = None) -> bool | int:
    made = terms.make(("op", name, 0, ()), forms, ())
    return Conditions(terms, truths or {}, [], []).of(made, forms, [{} for _ in forms])


def test_what_a_case_says_decides_what_is_made_of_it(terms: Terms) -> None:
    p, q = (terms.make(("state", name), (), ()) for name in "pq")
    assert _of(terms, "LogicalAnd", p, q, truths={p: True}) == q
    assert _of(terms, "LogicalAnd", p, q, truths={p: False}) is False
    assert _of(terms, "LogicalOr", p, q, truths={p: True}) is True
    assert _of(terms, "LogicalNot", p, truths={p: False}) is True
    assert _of(terms, "LogicalAnd", p, terms.constant(scalar_tensor("bool", True))) == p


def test_the_order_of_a_conjunction_does_not_count_and_what_is_joined_does(terms: Terms) -> None:
    p, q, r = (terms.make(("state", name), (), ()) for name in "pqr")
    both = _of(terms, "LogicalAnd", p, q)
    assert both == _of(terms, "LogicalAnd", q, p)
    assert both != _of(terms, "LogicalAnd", q, r)
    assert both != _of(terms, "LogicalOr", p, q)
    assert _of(terms, "LogicalAnd", int(both), r) == _of(terms, "LogicalAnd", p, int(_of(terms, "LogicalAnd", r, q)))
    assert _of(terms, "LogicalNot", int(_of(terms, "LogicalNot", p))) == p


def test_tests_for_finite_values_are_noted(terms: Terms) -> None:
    x, conditions = terms.make(("state", "x"), (), (3,)), Conditions(terms, {}, [], [])
    each = conditions.of(terms.make(("op", "IsFinite", 0, ()), (x,), (3,)), [x], [{}])
    whole = conditions.of(terms.make(("op", "ReduceAll", 0, ()), (int(each),), ()), [int(each)], [{}])
    assert whole != each
    assert conditions.tests == {each: x, whole: x}


def test_a_test_of_one_number_is_no_other_behind_a_conjunction_of_its_elements(terms: Terms) -> None:
    x, conditions = terms.make(("state", "x"), (), ()), Conditions(terms, {}, [], [])
    one = conditions.of(terms.make(("op", "IsFinite", 0, ()), (x,), ()), [x], [{}])
    whole = conditions.of(terms.make(("op", "ReduceAll", 0, ()), (int(one),), ()), [int(one)], [{}])
    assert whole == one
    assert conditions.tests == {one: x}
