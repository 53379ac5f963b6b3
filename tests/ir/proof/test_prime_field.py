"""Arithmetic modulo a prime: the laws of rational numbers hold, and what differs has other numbers."""

from __future__ import annotations

import operator
from fractions import Fraction

import pytest
from boost_compile.ir.proof.prime_field import PRIME, exact, inverse, join, made, mixed, plus, times

X, Y, S = made("x"), made("y"), made("s", scalar=True)


@pytest.mark.parametrize("value", [Fraction(0), Fraction(-3), Fraction(7, 12), 0.1])
def test_a_rational_number_has_one_pair(value: Fraction) -> None:
    number = exact(value)
    assert number.exact == Fraction(value)
    assert number.a == number.b
    assert number.a * Fraction(value).denominator % PRIME == Fraction(value).numerator % PRIME


def test_sums_products_and_quotients() -> None:
    assert plus(X, Y).pair == plus(Y, X).pair != times(X, Y).pair
    assert times(plus(X, Y), S).pair == plus(times(X, S), times(Y, S)).pair
    assert times(X, inverse(X)).pair == exact(1).pair
    assert join(operator.sub, X, X).pair == exact(0).pair
    assert plus(exact(2), times(exact(3), inverse(exact(4)))).exact == Fraction(11, 4)
    assert plus(exact(2), X).exact is None


def test_matrices_are_linear_and_do_not_commute() -> None:
    assert mixed(plus(X, times(S, Y)), "f").pair == plus(mixed(X, "f"), times(S, mixed(Y, "f"))).pair
    assert mixed(mixed(X, "f"), "g").pair != mixed(mixed(X, "g"), "f").pair
    assert mixed(times(X, Y), "f").pair != times(X, mixed(Y, "f")).pair  # Y is no scalar


def test_what_is_followed_stays_in_sight() -> None:
    marked = exact(0).__class__(3, 4, None, 1)
    assert plus(X, marked).of == times(marked, S).of == mixed(marked, "f").of == inverse(marked).of == 1
    assert X.of == 0
