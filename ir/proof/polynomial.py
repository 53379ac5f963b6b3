"""Polynomials over the rational numbers, of atoms that only have a number. No coefficient is zero."""

from __future__ import annotations

from fractions import Fraction

Monomial = tuple[tuple[int, int], ...]
"""Atoms with their exponents, in order."""
Polynomial = dict[Monomial, Fraction]
ONE: Monomial = ()


def add(total: Polynomial, monomial: Monomial, c: Fraction) -> None:
    """Adds ``c`` times ``monomial`` to ``total``."""
    new = total.get(monomial, Fraction(0)) + c
    if new:
        total[monomial] = new
    else:
        total.pop(monomial, None)


def plus(a: Polynomial, b: Polynomial) -> Polynomial:
    """The sum; linear in the shorter one, but for a copy."""
    if len(a) < len(b):
        a, b = b, a
    total = dict(a)
    for m, c in b.items():
        add(total, m, c)
    return total


def product(a: Polynomial, b: Polynomial, count: int = 1) -> Polynomial:
    """``a`` times ``b``, so many times."""
    for _ in range(count):
        total: Polynomial = {}
        for m, c in a.items():
            for n, d in b.items():
                add(total, times(m, n), c * d)
        a = total
    return a


def times(a: Monomial, b: Monomial) -> Monomial:
    """The product of two monomials."""
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, e in b:
        powers[atom] = powers.get(atom, 0) + e
    return tuple(sorted((atom, e) for atom, e in powers.items() if e))


def power(m: Monomial, e: int) -> Monomial:
    """A monomial to the power of ``e``, not zero."""
    return tuple((atom, x * e) for atom, x in m)
