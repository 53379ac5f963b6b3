"""Pairs of elements of the prime field with 2^61 - 1 elements, in which two different expressions rarely agree.

Who wants to know whether two expressions are the same puts a random pair for each variable: two rational expressions of
degree d that are not the same give one pair with a chance of about d / 2^61 (Schwartz and Zippel). A pair stands for a
vector, a pair of equals for a scalar. So a random matrix is a linear function that nothing is known of, and two of them
do not commute.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

PRIME = 2**61 - 1


@dataclass(frozen=True, slots=True)
class Num:
    """``exact``: the rational number itself, where it is known. ``of``: what it was computed from, a bit for each thing
    that someone wants to follow."""

    a: int
    b: int
    exact: Fraction | None = None
    of: int = 0

    @property
    def pair(self) -> tuple[int, int]:
        """What tells it from others."""
        return self.a, self.b


def random(count: int, *parts: object) -> list[int]:
    data = hashlib.shake_128(repr(parts).encode()).digest(8 * count)
    return [int.from_bytes(data[i : i + 8], "little") % PRIME for i in range(0, 8 * count, 8)]


def made(*parts: object, scalar: bool = False) -> Num:
    """A number that the parts alone decide."""
    a, b = random(2, *parts)
    return Num(a, a if scalar else b)


def exact(value: Fraction | float) -> Num:
    value = Fraction(value)
    number = value.numerator * pow(value.denominator, -1, PRIME) % PRIME
    return Num(number, number, value)


ZERO, ONE = exact(0), exact(1)


def join(f: Callable[[Any, Any], Any], x: Num, y: Num) -> Num:
    """A sum, difference or product."""
    known = None if x.exact is None or y.exact is None else f(x.exact, y.exact)
    return Num(f(x.a, y.a) % PRIME, f(x.b, y.b) % PRIME, known, x.of | y.of)


def plus(*numbers: Num) -> Num:
    return reduce(lambda x, y: join(operator.add, x, y), numbers) if numbers else ZERO


def times(*numbers: Num) -> Num:
    return reduce(lambda x, y: join(operator.mul, x, y), numbers) if numbers else ONE


def inverse(x: Num) -> Num:
    return Num(pow(x.a, PRIME - 2, PRIME), pow(x.b, PRIME - 2, PRIME), 1 / x.exact if x.exact else None, x.of)


def mixed(x: Num, *by: object) -> Num:
    """The number times a random matrix."""
    p, q, r, s = random(4, *by)
    return Num((p * x.a + q * x.b) % PRIME, (r * x.a + s * x.b) % PRIME, None, x.of)
