"""Terms as numbers: what is equal over the reals has one number, and what is not has another."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest
from boost_compile.ir.core.attributes import TensorValue
from boost_compile.ir.core.data import to_numpy
from boost_compile.ir.proof.numbers import AVERAGES, ONE_BATCH, Numbers, Val, flat
from boost_compile.ir.symbolic.execution import Execution
from boost_compile.ir.symbolic.terms import Terms

from tests.execution import PURE
from tests.graphs import graph

HEAD = """graph @g(%x: float32[2,3], %y: float32[2,3], %w: float32[3,2], %s: float32[], %c: bool[], %v: float32[4],
%u: float32[2]) {
"""


def values(text: str, case: int | None = None) -> list[Val]:
    """What a graph of these lines returns."""
    terms = Terms()
    g = graph(HEAD + text + "\n}")
    inputs = [terms.make(("input", i), (), terms.type(v.type)[1]) for i, v in enumerate(g.inputs)]
    found = Execution(terms).run(g, {}, inputs)
    plain = Numbers(terms, 7, {}, {}, None, 2, lambda _, value: value)
    known = {}
    for i in range(2):  # x and y are gradients
        number = plain.of(inputs[i])
        known[flat(number)] = type(number)(number.a, number.b, of=1 << 2 + i)
    return [Numbers(terms, 7, {}, known, case, 2, lambda _, value: value).of(t) for t in found.result]


def same(text: str, case: int | None = None) -> bool:
    one, other = values(text + "\n%r = MakeTuple(%a, %b)\nreturn %r", case)
    return flat(one) == flat(other)


@pytest.mark.parametrize(
    ("text", "equal"),
    [
        ("%p = Add(%x, %y)\n%a = Mul(%p, %s)\n%q = Mul(%x, %s)\n%o = Mul(%s, %y)\n%b = Add(%o, %q)", True),
        ("%p = Add(%x, %y)\n%a = Mul(%p, %s)\n%q = Mul(%x, %s)\n%b = Add(%y, %q)", False),
        ("%p = RealDiv(%x, %s)\n%a = Mul(%p, %s)\n%b = Neg(%x)", False),
        ("%p = RealDiv(%x, %s)\n%a = Mul(%p, %s)\n%q = Neg(%x)\n%b = Neg(%q)", True),
        ("%a = Sub(%x, %y)\n%b = Sub(%y, %x)", False),
        ("%p = Mul(%x, %s)\n%a = MatMul(%p, %w, false, false) : float32[2,2]\n"
         "%q = MatMul(%x, %w, false, false) : float32[2,2]\n%b = Mul(%q, %s)", True),
        ("%p = Mul(%x, %y)\n%a = MatMul(%p, %w, false, false) : float32[2,2]\n"
         "%q = MatMul(%x, %w, false, false) : float32[2,2]\n%b = Mul(%q, %q)", False),
        ("%a = Sqrt(%s)\n%b = Exp(%s)", False),
        ("%p = Reshape(%x, (6,)) : float32[6]\n%a = Reshape(%p, (2, 3)) : float32[2,3]\n%b = Depend(%x, %y)", True),
        ("%a = Reshape(%x, (3, 2)) : float32[3,2]\n%b = Reshape(%x, (6,)) : float32[6]", False),
        ("%a = Select(%c, %x, %x)\n%b = Depend(%x, %y)", True),
        ("%a = Select(%c, %x, %y)\n%b = Select(%c, %y, %x)", False),
    ],
)  # fmt: skip
def test_laws_of_the_reals(text: str, equal: bool) -> None:
    assert same(text) is equal


@pytest.mark.parametrize(("begin", "equal"), [("(4,)", True), ("(0,)", False)])
def test_a_part_of_what_was_joined(begin: str, equal: bool) -> None:
    text = "%t = MakeTuple(%v, %u)\n%j = Concat(%t, 0) : float32[6]\n" + (
        f"%a = Slice(%j, {begin}, (2,)) : float32[2]\n%b = Depend(%u, %x)"
    )
    assert same(text) is equal


JOINED = "%t = MakeTuple(%v, %u)\n%j = Concat(%t, 0) : float32[6]\n"
NUMBERS = "%n = Exp(%s)\n%k = Reshape(%s, (1,)) : float32[1]\n%l = Reshape(%n, (1,)) : float32[1]\n" + (
    "%t = MakeTuple(%k, %l)\n%j = Concat(%t, 0) : float32[2]\n%m = MatMul(%x, %w, false, false) : float32[2,2]\n"
)


@pytest.mark.parametrize(
    ("text", "equal"),
    [
        (JOINED + "%a = Mul(%j, %s)\n%p = Mul(%v, %s)\n%q = Mul(%u, %s)\n%o = MakeTuple(%p, %q)\n"
         "%b = Concat(%o, 0) : float32[6]", True),
        (JOINED + "%a = Add(%j, %j)\n%p = Add(%v, %v)\n%q = Depend(%u, %s)\n%o = MakeTuple(%p, %q)\n"
         "%b = Concat(%o, 0) : float32[6]", False),
        (JOINED + "%e = Exp(%j)\n%o = MakeTuple(%e, %j)\n%a = AddN(%o) : float32[6]\n%b = Add(%j, %e)", True),
        (JOINED + "%e = Exp(%j)\n%o = MakeTuple(%e, %j)\n%a = AddN(%o) : float32[6]\n%b = Exp(%j)", False),
        # numbers that are joined are a vector: the columns of a matrix may be scaled before a product or behind it
        (NUMBERS + "%p = Mul(%m, %j)\n%a = MatMul(%p, %m, false, false) : float32[2,2]\n"
         "%q = MatMul(%m, %m, false, false) : float32[2,2]\n%b = Mul(%q, %j)", False),
    ],
)  # fmt: skip
def test_what_was_joined_is_computed_with(text: str, equal: bool) -> None:
    assert same(text) is equal


TESTED = "%p = IsFinite(%x)\n%q = IsFinite(%y)\n%m = ReduceAll(%p, (), false) : bool[]\n" + (
    "%n = ReduceAll(%q, (), false) : bool[]\n"
)


@pytest.mark.parametrize(
    ("text", "finite", "spoiled"),
    [
        ("%r = LogicalAnd(%m, %n)", True, False),
        ("%o = LogicalOr(%m, %n)\n%r = LogicalNot(%o)", False, False),
        ("%r = LogicalAnd(%m, %m)", True, 0b10),  # nobody looks at y
    ],
)
def test_all_gradients_are_finite_or_one_is_not(text: str, finite: Val, spoiled: Val) -> None:
    text = f"{TESTED}{text}\nreturn %r"
    assert values(text, 0) == [finite]
    assert values(text, ONE_BATCH) == values(text, AVERAGES | ONE_BATCH) == [spoiled]
    assert values(text, AVERAGES) == [finite]  # nobody looks at an average
    assert values(text) != [finite]


LINES = (
    "Add(%{a}, %{b})", "Sub(%{a}, %{b})", "Mul(%{a}, %{b})", "RealDiv(%{a}, %{b})", "Neg(%{a})", "Square(%{a})",
    "Exp(%{a})", "Select(%c, %{a}, %{b})", "MatMul(%{a}, %{b}, false, false) : float32[2,2]", "Mul(%{a}, %s)",
    "RealDiv(%{a}, %s)", "ZerosLike(%{a})", "OnesLike(%{a})", "Maximum(%{a}, %{b})",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_what_has_one_number_has_one_value(seed: int) -> None:
    """Random expressions: where two have one number, numpy computes the same of both from random data."""
    rng, names, lines = random.Random(seed), ["x", "y"], list[str]()
    for i in range(60):
        made = rng.choice(LINES).format(a=rng.choice(names[-12:]), b=rng.choice(names[-12:]))
        lines.append(f"  %v{i} = {made}" + ("" if " : " in made else " : float32[2,2]"))
        names.append(f"v{i}")
    head = "graph @g(%x: float32[2,2], %y: float32[2,2], %s: float32[], %c: bool[2,2]) {\n"
    g = graph(head + "\n".join(lines) + f"\n  %r = MakeTuple({', '.join(f'%{n}' for n in names)})\n  return %r\n}}")
    terms, data = Terms(), np.random.default_rng(seed)
    inputs = [terms.make(("input", i), (), terms.type(v.type)[1]) for i, v in enumerate(g.inputs)]
    found = Execution(terms).run(g, {}, inputs).result
    drawn = [data.uniform(0.1, 0.6, (2, 2)) for _ in range(2)]
    computed = dict(zip(inputs, [*drawn, np.float64(0.7), data.random((2, 2)) < 0.5], strict=True))
    for t in terms.below(found, computed):
        value = terms.values.get(t)
        if isinstance(value, TensorValue):
            computed[t] = to_numpy(value.type, value.data)
        elif terms.heads[t][0] == "op":
            with np.errstate(all="ignore"):
                computed[t] = PURE[str(terms.heads[t][1])](*(computed[a] for a in terms.arguments[t]))
        else:
            computed[t] = value
    numbers = Numbers(terms, 7, {}, {}, None, 1, lambda _, v: v)
    equal = 0
    for a, b in combinations(dict.fromkeys(found), 2):
        x, y = np.broadcast_arrays(computed[a], computed[b])
        if flat(numbers.of(a)) == flat(numbers.of(b)) and np.isfinite(x).all() and np.isfinite(y).all():
            assert np.allclose(x, y, rtol=1e-6, atol=1e-9), (lines, a, b)
            equal += 1
    assert equal
