"""Numbers in the place of tensors: a model of the real numbers in which the checker runs graphs.

Sums, products and quotients act on each element. A primitive that is linear in operands is a random matrix for each of
them, one with several factors a product of such. Every other primitive is a hash of its name, attributes and operands.
So the laws of the real numbers hold, and f(s·x) = s·f(x); what is not equal by them has other numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import isfinite, prod
from typing import Any, cast

from ...ir.analysis.derivative.linear_operands import FILLS, SHAPE_ONLY, ZEROS, linear_in
from ...ir.core.attributes import TensorValue, bits, scalar_of
from ...ir.core.graph import Node
from ...ir.core.prime_field import Num, exact, inverse, join, made, mixed, plus, times
from ...ir.core.primitives import Family, facts
from ...ir.core.types import DType, TensorType, Type
from ...ir.rewrite.ranks.collectives import group_of, is_world

_ARITHMETIC = {Family.SUM: operator.add, Family.DIFFERENCE: operator.sub, Family.PRODUCT: operator.mul}
RANKS = 2**31 - 1
"""Of ranks there are as many, where they count the same."""
_COMPARISONS = {"Greater": "gt", "GreaterEqual": "ge", "Less": "lt", "LessEqual": "le", "Equal": "eq", "NotEqual": "ne"}


@dataclass(frozen=True, slots=True)
class Truth:
    """Whether all gradients that ``tests`` names are finite, or not so."""

    tests: int
    negated: bool = False


Val = Num | Truth | bool | tuple[Any, ...]


def constant(value: Any) -> Val:
    if isinstance(value, TensorValue) and value.type.dtype is not DType.STRING and value.data.is_zero():
        value = 0 if value.type.dtype is not DType.BOOL else value.type.size != 1 and value
    number = scalar_of(value)
    if number is not None and isfinite(number):
        return exact(number)
    return value if isinstance(value, bool) else made("constant", bits(value))


def is_scalar(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.shape == ()


def flat(v: Val) -> Hashable:
    """What tells a value from others."""
    if isinstance(v, tuple):
        return tuple(map(flat, v))
    return v.pair if isinstance(v, Num) else (v.tests, v.negated) if isinstance(v, Truth) else v


def number(v: Val) -> Num:
    return v if isinstance(v, Num) else exact(int(v)) if isinstance(v, bool) else made(flat(v))


class Field:
    """``case``: whether gradients are finite (None: it is not asked). ``gradients``: the bits of those that a test has
    to look at."""

    def __init__(self, case: bool | None = None, gradients: int = 0):
        self.case, self.gradients = case, gradients
        self.moved: dict[Hashable, tuple[Node | None, Sequence[Any]]] = {}

    def truth(self, tests: int, negated: bool = False) -> Val:
        """Decided where all are finite, or where one is not and all are looked at."""
        decided = self.case or tests & self.gradients == self.gradients
        return negated is not self.case if decided else Truth(tests, negated)

    def choose(self, condition: Val, yes: Val, no: Val) -> Val:
        if isinstance(condition, bool) or flat(yes) == flat(no):
            return yes if condition else no
        if isinstance(yes, tuple) and isinstance(no, tuple) and len(yes) == len(no):
            return tuple(self.choose(condition, a, b) for a, b in zip(yes, no, strict=True))
        chosen, x, y = replace(number(condition), of=0), number(yes), number(no)
        return plus(y, times(chosen, join(operator.sub, x, y)))

    def apply(self, node: Node, kind: Hashable, a: Sequence[Val]) -> Val:
        """What the node's primitive gives (``kind`` is its name), or writes."""
        found = self._interpreted(node, str(kind), a) if kind in (node.op.name, facts(node.op).pure) else None
        found = self._rearranged(node, a) if found is None else found
        if found is not None:
            return found
        if node.op.name in SHAPE_ONLY and -1 not in getattr(node.operand(0).type, "shape", (-1,)):
            a = ()
        types = [(v.type.dtype.value, v.type.shape) for v in (node, *node.operands) if isinstance(v.type, TensorType)]
        seed = (kind, sorted(map(repr, node.op.key[1])), types)
        factors = ((1,),) if node.op.name in FILLS else linear_in(node)
        if factors is None:
            return made(*seed, *map(flat, a), scalar=is_scalar(node.type))
        joint, inside = set(factors[0]).intersection(*factors), set[int]().union(*factors)
        chosen = made(*seed, *(flat(x) for i, x in enumerate(a) if i not in inside))

        def linear(places: set[int]) -> Num:
            terms = [(i, a[i]) for i in places if i < len(a)]
            parts = [(i, x) for i, of in terms for x in (of if isinstance(of, tuple) else (of,))]
            return plus(*(mixed(number(x), chosen, i, k) for k, (i, x) in enumerate(parts)))

        product = [linear(set(places) - joint) for places in factors] if len(factors) > 1 else [exact(0)]
        result = replace(plus(linear(joint), times(*product)), exact=None)
        self.moved[flat(result)] = node, a
        return result

    def over_ranks(self, v: Val) -> Val:
        """The sum over all ranks: a linear function that acts on each element where it stands."""
        node, a = self.moved.get(flat(v), (None, ()))
        if isinstance(v, tuple):
            return tuple(map(self.over_ranks, v))
        if node is not None and node.op.name in ("Reshape", "Concat"):
            return self.apply(node, node.op.name, [self.over_ranks(a[0]), *a[1:]])
        x = number(v)
        return exact(x.exact * RANKS) if x.exact is not None else mixed(x, "over ranks")

    def _rearranged(self, node: Node, a: Sequence[Val]) -> Val | None:
        """What is summed over ranks, or back where it was before a Reshape or a Concat."""
        if node.op.name == "AllReduce" and node.op.attributes.get("op") == "sum" and is_world(group_of(node)):
            return self.over_ranks(a[0])
        before, b = self.moved.get(flat(a[0]), (None, ())) if a else (None, ())
        names, shape = (before.op.name if before else "", node.op.name), getattr(node.type, "shape", (-1,))
        if before and names == ("Reshape", "Reshape") and shape == getattr(before.operand(0).type, "shape", ()):
            return b[0] if -1 not in shape else None
        joined = before.operand(0) if before else None
        if names == ("Concat", "Slice") and len(shape) == 1 and isinstance(joined, Node) and isinstance(b[0], tuple):
            sizes = [prod(getattr(v.type, "shape", ())) for v in joined.operands]
            for k, size in enumerate(sizes):
                if (sum(sizes[:k]),) == node.operand(1).literal and size == shape[0]:
                    return cast(Val, b[0][k])
        return None

    def _interpreted(self, node: Node, name: str, a: Sequence[Val]) -> Val | None:
        family, dtype = facts(node.op).family, node.type.dtype if isinstance(node.type, TensorType) else None
        if name in ("LogicalNot", "LogicalAnd", "LogicalOr", "ReduceAll", "IsFinite"):
            return self._logic(name, a)
        if name == "Select" and len(a) == 3:
            return self.choose(*a)
        if name in ZEROS or name == "OnesLike":
            return exact(int(name == "OnesLike"))
        if family is Family.CAST and isinstance(a[0], bool):
            return exact(int(a[0]))
        n = [x for x in (a[0] if len(a) == 1 and isinstance(a[0], tuple) else a) if isinstance(x, Num)]
        if len(n) < max(len(a), 1):
            return None
        if name in _COMPARISONS and len(n) == 2:
            known = n[0].exact is not None and n[1].exact is not None
            return bool(getattr(operator, _COMPARISONS[name])(n[0].exact, n[1].exact)) if known else None
        if dtype is None or dtype is DType.BOOL:
            return None
        if family is Family.CAST:
            return n[0] if dtype.is_float and getattr(node.operand(0).type, "dtype", dtype).is_float else None
        if name == "AddN":
            return plus(*n)
        if name in ("Neg", "Square"):
            return times(n[0], n[0] if name == "Square" else exact(-1))
        if family in _ARITHMETIC and len(n) in (2, 3):
            return join(_ARITHMETIC[family], n[0], times(*n[1:]))
        return times(n[0], inverse(n[1])) if dtype.is_float and family is Family.QUOTIENT and len(n) == 2 else None

    def _logic(self, name: str, a: Sequence[Val]) -> Val | None:
        x, neutral = a[0], name == "LogicalAnd"
        if name == "IsFinite" and isinstance(x, Num):
            asked = self.case is not None and bool(x.of)
            return True if x.exact is not None or x.pair == (0, 0) else self.truth(x.of) if asked else None
        if name == "ReduceAll":
            return None if isinstance(x, Num) else x
        if name == "LogicalNot":
            return not x if isinstance(x, bool) else Truth(x.tests, not x.negated) if isinstance(x, Truth) else None
        rest = [y for y in a if y is not neutral]
        if (not neutral) in rest or not rest:
            return not neutral if rest else neutral
        tests = [y.tests for y in rest if isinstance(y, Truth) and y.negated is not neutral]
        return rest[0] if len(rest) == 1 else self.truth(tests[0] | tests[1], not neutral) if len(tests) == 2 else None
