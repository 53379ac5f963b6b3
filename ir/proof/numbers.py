"""What a proof makes of terms: numbers of a prime field, which are a model of the real numbers.

Sums, products and quotients act on each element. A primitive that is linear in operands is a random matrix for each of
them, one with several factors a product of such. Everything else is a hash of what it is and of what it takes. So the
laws of the real numbers hold, and f(s·x) = s·f(x); what is not equal by them has other numbers. A Reshape multiplies by
a number for each of its two shapes, and a Concat of vectors keeps its parts: both can be undone. Where a Concat is
computed with, it is the sum of its parts, each times a number of its place.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate
from math import isfinite
from typing import Any

from ..analysis.derivative.linear_operands import FILLS, SHAPE_ONLY, ZEROS, linear_in
from ..analysis.derivative.linearity import LinearCall
from ..core.attributes import Attribute, TensorValue, bits, scalar_of
from ..core.data import to_numpy
from ..core.graph import Node
from ..core.primitives import PRIMITIVES, Family, facts
from ..core.types import DType, TensorType, TupleType, Type
from ..rewrite.ranks.collectives import group_of, is_world
from ..symbolic.products import PRODUCT
from ..symbolic.terms import VARIES, Terms, written_state
from .prime_field import Num, exact, inverse, join, made, mixed, plus, times

Val = Num | bool | int | tuple[Any, ...] | dict[Any, Any]
"""A number, a truth, the parts of a Concat by where they begin and how long they are. An int is a truth too: of each
gradient one bit, whether it holds if that one is not finite."""
Mean = Callable[[int, Num], Val]
Update = Callable[[Node, str, list[Val]], list[Val]]
RANKS = 2**31 - 1
"""Of ranks there are as many, where they count the same."""
_REARRANGES = ("Reshape", "Concat", "Slice")
AVERAGES, ONE_BATCH = 1, 2
"""What may not be finite in a case: the averages of gradients, the gradients of the micro-batch at hand; or both."""
_ARRANGES = (*_REARRANGES, "AllReduce")
"""Primitives that take the parts of a Concat where they stand."""
_ARITHMETIC = {Family.SUM: operator.add, Family.DIFFERENCE: operator.sub, Family.PRODUCT: operator.mul}
_COMPARISONS = {"Greater": "gt", "GreaterEqual": "ge", "Less": "lt", "LessEqual": "le", "Equal": "eq", "NotEqual": "ne"}


def constant(value: Any) -> Val:
    if isinstance(value, TensorValue) and value.type.dtype is not DType.STRING and value.data.is_zero():
        value = 0 if value.type.dtype is not DType.BOOL else value.type.size != 1 and value
    known = scalar_of(value)
    if known is not None and isfinite(known):
        return exact(known)
    return value if isinstance(value, bool) else made("constant", bits(value))


def _finite(value: Attribute) -> bool:
    """Whether it is a tensor of finite numbers."""
    if not isinstance(value, TensorValue) or value.type.dtype not in (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64):
        return False
    array = to_numpy(value.type, value.data)
    return bool((abs(array) < float("inf")).all())


def shape_of(type_: Type) -> tuple[int, ...] | None:
    return type_.shape if isinstance(type_, TensorType) and type_.is_static else None


def flat(v: Val) -> Hashable:
    """What tells a value from others."""
    if isinstance(v, tuple):
        return tuple(map(flat, v))
    v = joined(v) if isinstance(v, dict) else v
    return v.pair if isinstance(v, Num) else v


def number(v: Val) -> Num:
    if isinstance(v, dict):
        return joined(v)
    return v if isinstance(v, Num) else exact(int(v)) if isinstance(v, bool) else made(flat(v))


def _one(v: Val) -> Val:
    """A value without parts that stand for themselves."""
    if isinstance(v, tuple):
        return tuple(map(_one, v))
    return joined(v) if isinstance(v, dict) else v


def joined(parts: Mapping[Any, Val]) -> Num:
    """A Concat as one number. Its places are scalars, so that a sum over ranks of it is that of its parts."""
    whole = plus(*(times(made("place", at, scalar=True), number(x)) for at, x in parts.items()))
    if whole.a == whole.b != 0:  # parts of one number each are a vector, which is no factor of what is linear
        return replace(made("parts", *((at, flat(x)) for at, x in parts.items())), of=whole.of)
    return whole


def over_ranks(v: Val, same: Collection[Hashable] = (), totals: Mapping[Hashable, Num] | None = None) -> Val:
    """The sum over all ranks: a linear function that acts on each element where it stands; of what is the ``same`` on
    all, so many times that. ``totals``: what is the same on all, so often as each rank counts."""
    if isinstance(v, dict):
        return {place: over_ranks(x, same, totals) for place, x in v.items()}
    if isinstance(v, tuple):
        return tuple(over_ranks(x, same, totals) for x in v)
    x = number(v)
    count = totals.get(x.pair) if totals else None
    if count is not None:
        return times(x, inverse(count), number(over_ranks(count, same)))
    return times(exact(RANKS), x) if x.exact is not None or x.pair in same else mixed(x, "over ranks")


class Shared:
    """Numbers that are the same in all cases, so that each is computed once. ``bound``: terms that have another number
    in some case; what depends on none of them, on no average, no test and no update is free."""

    def __init__(self, terms: Terms, bound: Collection[int] = ()):
        self.terms, self.bound = terms, frozenset(bound)
        self.values: dict[int, Val] = {}
        self.same: set[Hashable] = set()
        self._free = bytearray()

    def free(self, t: int) -> bool:
        terms, free = self.terms, self._free
        for new in range(len(free), t + 1):
            kind, node = terms.heads[new][0], terms.nodes[new]
            own = kind in ("mean", "held", "given") or new in self.bound or terms.name(new) == "IsFinite"
            own = own or (kind in ("op", "written") and node is not None and facts(node.op).gradient is not None)
            free.append(not own and all(free[a] for a in terms.arguments[new]))
        return bool(free[t])


class Numbers:
    """The numbers of terms. ``given``: those of some terms; ``known``: what stands for a number once it is met.
    ``case``: what may not be finite (None: it is not asked), where one of so many ``gradients`` is not. Numbers have a
    bit for each gradient whose average they are computed from, then one for each that is the micro-batch's own, then
    one of what is always finite. ``mean``: what a gradient becomes that leaves the backward part; ``update``: what an
    optimizer takes instead; ``calls``: functions that are linear. Numbers are not 0 that are ``nonzero``. ``totals``:
    numbers that are the same on all ranks, so often as each rank counts, and how often that is."""

    def __init__(
        self, terms: Terms, seed: int, given: Mapping[int, Val], known: Mapping[Hashable, Num], case: int | None,
        gradients: int, mean: Mean, update: Update | None = None, calls: Mapping[int, LinearCall] | None = None,
        shared: Shared | None = None,
    ):  # fmt: skip
        self.terms, self.seed, self.known, self.case = terms, seed, known, case
        if shared is None or any(map(shared.free, given)):
            shared = Shared(terms)
        self.shared, self.same = shared, shared.same
        self.values: dict[int, Val] = {**shared.values, **given}
        self.nonzero: set[Hashable] = set()
        self.totals: dict[Hashable, Num] = {}
        self.count = max(gradients, 1)
        self.full = (1 << self.count) - 1
        self.mean, self.update, self.calls = mean, update, calls or {}

    def of(self, root: int) -> Val:
        for t in self.terms.below([root], self.values):
            value = self._value(t, [self.values[a] for a in self.terms.arguments[t]])
            self.values[t] = self._met(value)
            if isinstance(value, Num) and not self.terms.traits[t] & VARIES:
                self.same.add(value.pair)
            if self.shared.free(t):
                self.shared.values[t] = self.values[t]
        return self.values[root]

    def _value(self, t: int, a: list[Val]) -> Val:
        terms, head, node = self.terms, self.terms.heads[t], self.terms.nodes[t]
        kind = head[0]
        if kind == "mean":
            return self.mean(terms.arguments[t][0], number(a[0]))
        if kind == "const":
            value = constant(terms.values[t])
            return (
                replace(value, of=1 << 2 * self.count) if isinstance(value, Num) and _finite(terms.values[t]) else value
            )
        if kind == "tuple":
            return tuple(a)
        call = self.calls.get(next(iter(terms.arguments[t]), -1)) if kind == "apply" else None
        if call is not None:
            others = made(self.seed, *(flat(x) for i, x in enumerate(a) if i not in call.operands))
            return plus(*(mixed(number(a[i]), terms.make(("head", head)), others, i) for i in sorted(call.operands)))
        if kind == "item":
            whole, at = a[0], head[1]
            behind = terms.arguments[t][0]
            call = self.calls.get(next(iter(terms.arguments[behind]), -1))
            if call is not None and at not in call.items:
                return made(self.seed, terms.make(("head", head)), behind)
            return whole[at] if isinstance(whole, tuple) and isinstance(at, int) else mixed(number(whole), "item", at)
        if kind == "ite":
            return self.choose(*a)
        if node is not None and kind in ("op", "written"):
            weight = written_state(terms, t, node) if self.update and facts(node.op).gradient is not None else None
            a = self.update(node, weight, a) if self.update and weight else a
            return self._primitive(node, str(head[1]), head[3:] if kind == "written" else (), a)
        return made(self.seed, terms.make(("head", head)), *map(flat, a), scalar=terms.shapes[t] == ())

    def _met(self, value: Val) -> Val:
        """A number as it is known once it is met; the parts of a Concat come from what the whole does."""
        if isinstance(value, dict):
            of = self.known.get(joined(value).pair, exact(0)).of
            return {at: replace(x, of=x.of | of) for at, x in zip(value, map(number, value.values()), strict=True)}
        met = isinstance(value, Num) and value.exact is None  # a gradient may be 0, and a number 0 is none
        return self.known.get(value.pair, value) if met else value  # type: ignore[union-attr]

    def truth(self, of_each: int) -> bool | int:
        of_each &= self.full
        return bool(of_each) if of_each in (0, self.full) else of_each

    def choose(self, condition: Val, yes: Val, no: Val) -> Val:
        if isinstance(condition, bool) or flat(yes) == flat(no):
            return yes if condition else no
        if isinstance(yes, tuple) and isinstance(no, tuple) and len(yes) == len(no):
            return tuple(self.choose(condition, a, b) for a, b in zip(yes, no, strict=True))
        x, y = number(yes), number(no)
        return plus(y, times(replace(number(condition), of=0), join(operator.sub, x, y)))

    def _primitive(self, node: Node, name: str, part: Hashable, a: Sequence[Val]) -> Val:
        """What a primitive gives, or what it writes, and where: ``part``."""
        if name not in _ARRANGES:
            a = [_one(x) for x in a]
        found = self._interpreted(node, name, a) if not part else None
        if found is not None:
            return found
        if node.op.name in SHAPE_ONLY and -1 not in getattr(node.operand(0).type, "shape", (-1,)):
            a = ()
        types = [self.terms.type(v.type)[0] for v in (node, *node.operands) if isinstance(v.type, TensorType)]
        # A product of matrices is told by its operands as they lie, whatever its node takes.
        seed = (name, part, sorted(map(repr, node.op.key[1])), types) if name != PRODUCT else (name, part)
        factors = ((1,),) if node.op.name in FILLS else linear_in(node)
        if factors is None:
            return made(*seed, *map(flat, a), scalar=shape_of(node.type) == ())
        joint, inside = set(factors[0]).intersection(*factors), set[int]().union(*factors)
        chosen = made(*seed, *(flat(x) for i, x in enumerate(a) if i not in inside))

        def linear(places: set[int]) -> Num:
            terms = [(i, a[i]) for i in places if i < len(a)]
            parts = [(i, x) for i, of in terms for x in (of if isinstance(of, tuple) else (of,))]
            return plus(*(mixed(number(x), chosen, i, k) for k, (i, x) in enumerate(parts)))

        product = [linear(set(places) - joint) for places in factors] if len(factors) > 1 else [exact(0)]
        return replace(plus(linear(joint), times(*product)), exact=None)

    def _interpreted(self, node: Node, name: str, a: Sequence[Val]) -> Val | None:
        family, dtype = (
            PRIMITIVES[name].family if name in PRIMITIVES else None,
            node.type.dtype if isinstance(node.type, TensorType) else None,
        )
        if name in ("LogicalNot", "LogicalAnd", "LogicalOr", "ReduceAll", "IsFinite"):
            return self._logic(name, a)
        if name == "Select" and len(a) == 3:
            return self.choose(*a)
        if name in ZEROS or name == "OnesLike":
            return exact(int(name == "OnesLike"))
        if name == "AllReduce" and node.op.attributes.get("op") == "sum" and is_world(group_of(node)):
            return over_ranks(a[0], self.same, self.totals)
        if name in _REARRANGES:
            moved = _rearranged(node, name, a)
            count = self.totals.get(a[0].pair) if name == "Reshape" and isinstance(a[0], Num) else None
            if isinstance(moved, Num) and count is not None:
                self.totals[moved.pair] = count
            return moved
        if family is Family.CAST and isinstance(a[0], bool):
            return exact(int(a[0]))
        taken = a[0] if len(a) == 1 and isinstance(a[0], tuple) else a
        n = [x for x in taken if isinstance(x, Num)]
        if len(n) < max(len(taken), 1):
            return None
        if name in _COMPARISONS and len(n) == 2:
            if name in ("Equal", "NotEqual") and n[1].exact == 0 and n[0].pair in self.nonzero:
                return name == "NotEqual"
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
        a = a[:1] if name == "ReduceAll" else a  # what else it takes is no condition
        truths = [self.full if x is True else int(x) for x in a if isinstance(x, int)]
        if name == "IsFinite" and isinstance(a[0], Num):
            if a[0].exact is not None or (a[0].pair == (0, 0) and not a[0].of):
                return True  # what cancels is 0 where its parts are finite
            if self.case is None or not a[0].of:
                return None
            averages = a[0].of if self.case & AVERAGES else 0
            return self.truth(~(averages | (a[0].of >> self.count if self.case & ONE_BATCH else 0)))
        if name == "ReduceAll":
            return self.truth(truths[0]) if truths else None
        if name == "LogicalNot":
            return self.truth(~truths[0]) if truths else _not(number(a[0]))
        joining, neutral = (operator.and_, self.full) if name == "LogicalAnd" else (operator.or_, 0)
        joined = reduce(joining, truths, neutral)
        if len(truths) == len(a) or joined == self.full ^ neutral:
            return self.truth(joined)
        rest = [number(self.truth(joined)), *(x for x in a if isinstance(x, Num))]  # what is true is 1, what is not 0
        return times(*rest) if name == "LogicalAnd" else _not(times(*map(_not, rest)))


def _not(x: Num) -> Num:
    return join(operator.sub, exact(1), x)


def _rearranged(node: Node, name: str, a: Sequence[Val]) -> Val | None:
    """A Reshape between fixed shapes, a Concat of vectors, and a Slice of one at the bounds of a part."""
    of, shape = node.operand(0).type, shape_of(node.type)
    if name == "Reshape":
        before = shape_of(of)
        if shape is None or before is None or before == shape or not isinstance(a[0], Num):
            return a[0] if before == shape is not None else None
        to, back = (made("shape", s, scalar=True) for s in (shape, before))
        return times(a[0], to, inverse(back))
    if name == "Slice":
        return a[0].get((node.operand(1).literal, shape)) if isinstance(a[0], dict) else None
    sizes = [shape_of(t) or () for t in of.elements] if isinstance(of, TupleType) else []
    if shape is None or len(shape) != 1 or not isinstance(a[0], tuple) or any(len(s) != 1 for s in sizes):
        return None
    ends = accumulate(s for (s,) in sizes)
    return {((end - s[0],), s): x for end, s, x in zip(ends, sizes, a[0], strict=True)}
