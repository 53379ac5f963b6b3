"""Numbers in the place of tensors: the arithmetic of a large prime field, in which the checker runs graphs.

What elements are computed from by sums, products and quotients is computed with these numbers. Every other primitive
is a hash of its name, attributes and operands. Two different rational expressions of degree d get one number with a
chance of d / 2^61. Loss scales are kept apart as a degree, since gradients are linear in them: a value is
``number * scale ** degree``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

from ...ir.analysis.derivative.linear_operands import FILLS, SHAPE_ONLY, linear_in
from ...ir.core.attributes import Number, TensorValue, bits
from ...ir.core.data import to_numpy
from ...ir.core.graph import Node
from ...ir.core.primitives import Family, facts
from ...ir.core.types import DType, TensorType

PRIME = 2**61 - 1
_COMPARE = {
    "Greater": lambda d: d > 0, "GreaterEqual": lambda d: d >= 0, "Less": lambda d: d < 0,
    "LessEqual": lambda d: d <= 0, "Equal": lambda d: d == 0, "NotEqual": lambda d: d != 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Num:
    """``exact``: the number itself, where it comes from constants and counts alone. ``tests``: the gradients in it, a
    bit for each."""

    number: int
    degree: int = 0
    exact: Fraction | None = None
    tests: int = 0


@dataclass(frozen=True, slots=True)
class Truth:
    """Whether everything that ``tests`` names is finite, or not so."""

    tests: int
    negated: bool = False


Val = Num | Truth | bool | tuple[Any, ...]


def digest(*parts: Hashable) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little") % PRIME


def exact(value: Fraction | int) -> Num:
    value = Fraction(value)
    return Num(value.numerator * pow(value.denominator, -1, PRIME) % PRIME, 0, value)


def constant(value: Any) -> Val:
    number = value.value if isinstance(value, Number) else value
    if isinstance(value, TensorValue):
        kind, number = value.type.dtype, None
        if kind not in (DType.STRING, DType.BFLOAT16) and value.type.size == 1:
            number = to_numpy(value.type, value.data).reshape(-1)[0].item()
        elif kind is not DType.BOOL and value.data.is_zero():
            number = 0
    if isinstance(number, bool):
        return number
    if isinstance(number, (int, float)) and abs(number) < float("inf"):
        return exact(Fraction(number))
    return Num(digest("constant", bits(value)))


class Field:
    """``case``: whether gradients are finite (None: it is not asked). ``gradients``: the bits of those that a test has
    to look at. ``seed``: of the numbers."""

    def __init__(self, seed: int, case: bool | None = None, gradients: int = 0):
        self.seed, self.case, self.gradients = seed, case, gradients
        self.base = digest(seed, "scale")

    def leaf(self, *name: Hashable) -> Num:
        return Num(digest(self.seed, *name))

    def flat(self, v: Val) -> int:
        """The value as one number."""
        if isinstance(v, tuple):
            return digest("tuple", *map(self.flat, v))
        if isinstance(v, Num):
            return v.number * pow(self.base, v.degree % (PRIME - 1), PRIME) % PRIME if v.degree else v.number
        settled = self.settled(v)
        return digest("test", v.tests, v.negated) if settled is None and isinstance(v, Truth) else digest(settled)

    def same(self, a: Val, b: Val) -> bool:
        return self.flat(a) == self.flat(b)

    def settled(self, v: Val) -> bool | None:
        """A condition where the case decides it: a test must look at all gradients to notice each."""
        if isinstance(v, bool):
            return v
        if isinstance(v, Truth) and self.case is True:
            return not v.negated
        if isinstance(v, Truth) and self.case is False and v.tests & self.gradients == self.gradients:
            return v.negated
        return None

    def choose(self, condition: Val, yes: Val, no: Val) -> Val:
        known = self.settled(condition)
        if known is not None or self.flat(yes) == self.flat(no):
            return no if known is False else yes
        if isinstance(yes, tuple) and isinstance(no, tuple) and len(yes) == len(no):
            return tuple(self.choose(condition, a, b) for a, b in zip(yes, no, strict=True))
        degrees = {v.degree for v in (yes, no) if isinstance(v, Num) and v.number}
        joint = degrees.pop() if len(degrees) == 1 and isinstance(yes, Num) and isinstance(no, Num) else None
        parts = [v.number if joint is not None and isinstance(v, Num) else self.flat(v) for v in (yes, no)]
        return Num(digest("choice", self.flat(condition), *parts), joint or 0, None, tests_of((yes, no)))

    def plus(self, a: Num, b: Num, sign: int = 1) -> Num:
        if a.exact is not None and b.exact is not None:
            return exact(a.exact + sign * b.exact)
        tests = a.tests | b.tests
        if a.degree != b.degree and a.number and b.number:
            a, b = Num(self.flat(a)), Num(self.flat(b))
        return Num((a.number + sign * b.number) % PRIME, a.degree if a.number else b.degree, None, tests)

    def times(self, a: Num, b: Num) -> Num:
        if a.exact is not None and b.exact is not None:
            return exact(a.exact * b.exact)
        return Num(a.number * b.number % PRIME, a.degree + b.degree, None, a.tests | b.tests)

    def inverse(self, a: Num) -> Num:
        if a.exact:
            return exact(1 / a.exact)
        return Num(pow(a.number, -1, PRIME) if a.number else digest("1/0"), -a.degree, None, a.tests)

    def apply(self, node: Node, kind: Hashable, a: Sequence[Val]) -> Val:
        """What the node's primitive gives (``kind`` is its name), or writes."""
        if kind == node.op.name or kind == facts(node.op).pure:
            found = self._interpreted(node, str(kind), list(a))
            if found is not None:
                return found
        degree = self._degree(node, a)
        parts = [self.flat(x) if degree is None else _base(self, x) for x in a]
        type_ = (node.type.dtype, node.type.shape) if isinstance(node.type, TensorType) else ()
        shapes = tuple(getattr(v.type, "shape", ()) for v in node._operands)
        made = digest(kind, tuple(sorted(map(repr, node.op.key[1]))), type_, shapes, *parts)
        return Num(made, degree or 0, None, tests_of(tuple(a)))

    def _degree(self, node: Node, a: Sequence[Val]) -> int | None:
        """By how many loss scales the result is multiplied; None where operands count as they are."""
        degrees = [degree_of(x) for x in a]
        if node.op.name in SHAPE_ONLY:
            return 0
        alternatives = linear_in(node)
        if not any(degrees) or alternatives is None or None in degrees:
            return None
        if len(alternatives) > 1 and all(len(p) == 1 for p in alternatives):
            places = {p[0] for p in alternatives}
            return None if any(d for i, d in enumerate(degrees) if i not in places) else sum(d or 0 for d in degrees)
        for positions in alternatives:
            inside = {degrees[i] for i in positions if i < len(a) and not is_zero(a[i])}
            if len(inside) == 1 and not any(d for i, d in enumerate(degrees) if i not in positions):
                return inside.pop()
        return None

    def _interpreted(self, node: Node, name: str, a: list[Val]) -> Val | None:
        family = facts(node.op).family
        if name in ("LogicalNot", "LogicalAnd", "LogicalOr", "ReduceAll", "IsFinite"):
            return self._logic(name, a)
        if name == "Select" and len(a) == 3:
            return self.choose(a[0], a[1], a[2])
        if name in ("ZerosLike", "ZerosLikeExt", "OnesLike"):
            return exact(int(name == "OnesLike"))
        if family is Family.CAST and (settled := self.settled(a[0])) is not None:
            return exact(int(settled))
        n = list(a[0]) if name == "AddN" and len(a) == 1 and isinstance(a[0], tuple) else a
        if name in FILLS and is_zero(n[1]):
            return exact(0)
        alternatives = linear_in(node) if name not in ("Mul", "Muls") else None
        if (
            alternatives is not None
            and len(alternatives) == 1
            and all(is_zero(a[i]) for i in alternatives[0] if i < len(a))
        ):
            return exact(0)
        if not n or not all(isinstance(x, Num) for x in n):
            return None
        return self._arithmetic(node, name, cast("list[Num]", n))

    def _arithmetic(self, node: Node, name: str, n: list[Num]) -> Val | None:
        family = facts(node.op).family
        dtype = node.type.dtype if isinstance(node.type, TensorType) else None
        if name in _COMPARE and len(n) == 2:
            difference = self.plus(n[0], n[1], -1).exact
            return None if difference is None else bool(_COMPARE[name](difference))
        if family is Family.CAST:
            source = getattr(node.operand(0).type, "dtype", None)
            return n[0] if dtype is not None and dtype.is_float and source is not None and source.is_float else None
        if dtype is DType.BOOL:
            return None
        if name == "AddN":
            total = exact(0)
            for x in n:
                total = self.plus(total, x)
            return total
        if family in (Family.SUM, Family.DIFFERENCE) and len(n) in (2, 3):
            second = self.times(n[1], n[2]) if len(n) == 3 else n[1]
            return self.plus(n[0], second, 1 if family is Family.SUM else -1)
        if name == "Neg":
            return self.plus(exact(0), n[0], -1)
        if name == "Square" or (family is Family.PRODUCT and len(n) == 2):
            return self.times(n[0], n[-1])
        if dtype is not None and dtype.is_float and name == "Reciprocal":
            return self.inverse(n[0])
        if dtype is not None and dtype.is_float and family is Family.QUOTIENT and len(n) == 2:
            return self.times(n[0], self.inverse(n[1]))
        if name in ("Maximum", "Minimum") and len(n) == 2:
            return Num(digest(name, *sorted(map(self.flat, n))), 0, None, tests_of(tuple(n)))
        return None

    def _logic(self, name: str, a: list[Val]) -> Val | None:
        x = a[0]
        if name == "IsFinite" and isinstance(x, Num):
            return True if x.exact is not None else Truth(x.tests) if x.tests else None
        if name == "ReduceAll":
            return x if isinstance(x, (Truth, bool)) else None
        if name == "LogicalNot":
            return Truth(x.tests, not x.negated) if isinstance(x, Truth) else (not x) if isinstance(x, bool) else None
        neutral = name == "LogicalAnd"
        rest = [y for y in a if y is not neutral]
        if (not neutral) in rest:
            return not neutral
        if len(rest) < 2:
            return rest[0] if rest else neutral
        if all(isinstance(y, Truth) and y.negated is not neutral for y in rest):
            return Truth(tests_of(tuple(rest)), not neutral)
        return None


def _base(field: Field, a: Val) -> int:
    if isinstance(a, Num):
        return a.number
    return digest("tuple", *(_base(field, x) for x in a)) if isinstance(a, tuple) else field.flat(a)


def degree_of(v: Val) -> int | None:
    if isinstance(v, tuple):
        found = {degree_of(x) for x in v if not is_zero(x)}
        return found.pop() if len(found) == 1 else None if found else 0
    return v.degree if isinstance(v, Num) else 0


def is_zero(v: Val) -> bool:
    return (isinstance(v, Num) and not v.number) or (isinstance(v, tuple) and bool(v) and all(map(is_zero, v)))


def tests_of(v: Val) -> int:
    if isinstance(v, tuple):
        found = 0
        for x in v:
            found |= tests_of(x)
        return found
    return v.tests if isinstance(v, (Num, Truth)) else 0
