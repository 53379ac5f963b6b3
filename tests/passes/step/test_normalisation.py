"""The one scalar that all gradients of a graph are divided by."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.analysis.training.divisor import find_divisor
from boost_compile.ir.core.graph import Graph, Node
from boost_compile.passes.step.normalisation import (
    change_count,
    change_divisor,
    declare_divisor,
    divide,
    divide_gradients,
    division_of,
    forget_divisor,
)

from tests.execution import run_graph
from tests.graphs import graph, node

TEXT = """
graph @apply(%n: float32[], %g: float32[2], %h: KIND[2]) {
  %count = Mul(%n, float32[]<1.0>)
  %a = Neg(%g)
  %b = Neg(%h)
  %c = Exp(%g)
  %d = Mul(%a, %c)
  %r = MakeTuple(%a, %b, %d)
  return %r
}"""


def apply(kind: str = "float16") -> Graph:
    return graph(TEXT.replace("KIND", kind))


def test_half_gradients_are_divided_in_float32() -> None:
    """In half precision a divisor above 65,504 would be infinite, and the quotient zero."""
    g = apply()
    quotient = divide(g, node(g, "b"), node(g, "count"), scope="s")
    g.result = quotient
    g.sort()
    assert isinstance(quotient, Node)
    assert str(quotient.type) == "float16[2]"
    division = quotient.operand(0)
    assert isinstance(division, Node)
    assert division.op.name == "RealDiv"
    assert [str(o.type) for o in division.operands] == ["float32[2]", "float32[]"]
    large = np.float32(102_400)
    found = run_graph(g, [large, np.zeros(2, np.float32), np.array([-51_200, 20_480], np.float16)], {})
    np.testing.assert_array_equal(found, np.array([0.5, -0.2], np.float16))


@pytest.mark.parametrize(("kind", "wide"), [("float32", "float32"), ("float64", "float64"), ("bfloat16", "float32")])
def test_others_are_divided_in_their_own_type_or_wider(kind: str, wide: str) -> None:
    g = apply(kind)
    quotient = divide(g, node(g, "b"), node(g, "count"), scope="s")
    assert str(quotient.type) == f"{kind}[2]"
    division = next(n for n in g if n.op.name == "RealDiv")
    assert [str(o.type) for o in division.operands] == [f"{wide}[2]", f"{wide}[]"]
    assert (quotient is division) == (kind == wide)


def test_each_gradient_is_divided_once_and_marked() -> None:
    g = apply()
    a, d, r = (node(g, name) for name in ("a", "d", "r"))
    divide_gradients(g, dict.fromkeys([(d, 0), (r, 0), (r, 1)], declare_divisor(node(g, "count"))), scope="s")
    divisor = find_divisor(g)
    assert divisor is not None
    assert (divisor.op.name, divisor.name) == ("Mul", "normalisation")
    quotient = d.operand(0)
    assert quotient is r.operand(0)
    assert isinstance(quotient, Node)
    assert quotient.marks["stage"] == "unscale"
    assert quotient.operands == (a, divisor)
    assert sum(n.op.name == "RealDiv" for n in g) == 2
    assert r.operand(1).marks["stage"] == "unscale"  # type: ignore[attr-defined]
    assert d.operand(1) is node(g, "c")


def normalised() -> Graph:
    g = apply()
    uses = [(node(g, "d"), 0), (node(g, "r"), 1)]
    divide_gradients(g, dict.fromkeys(uses, declare_divisor(node(g, "count"))), scope="s")
    declare_divisor(node(g, "normalisation"), counted=True)
    return g


def test_a_changed_divisor_is_what_all_divide_by() -> None:
    g = normalised()
    old = find_divisor(g)
    assert old is not None
    asked = []

    def twice(divisor: Node) -> Node:
        asked.append(divisor)
        return g.create("Add", [divisor, divisor])

    assert change_divisor(g, twice)
    assert asked == [old]
    new = find_divisor(g)
    assert new is not None
    assert new.operands == (old, old)
    assert "stage" not in old.marks
    assert "counts_micro_batches" in old.marks
    assert old.name.endswith(".normalisation")
    assert new.name == "normalisation"
    divisors = {n.operand(1).operand(0) if n.operand(1) is not new else new for n in g if n.op.name == "RealDiv"}  # type: ignore[attr-defined]
    assert divisors == {new}
    g.sort()
    found = run_graph(g, [np.float32(2), np.ones(2, np.float32), np.full(2, 8, np.float16)], {})
    np.testing.assert_array_equal(found[1], np.full(2, -2, np.float16))


def test_without_a_divisor_nothing_changes() -> None:
    g = apply()
    assert not change_divisor(g, lambda old: old)
    change_count(g, lambda old: g.create("Neg", [old]))
    assert not any(n.op.name == "Neg" and n.operand(0) is node(g, "count") for n in g)


def test_a_changed_count_is_a_factor_of_the_divisor() -> None:
    """A scale joined the divisor; the number of micro-batches is still known as its factor."""
    g = normalised()
    change_divisor(g, lambda count: g.create("Mul", [count, g.inputs[0]]))
    count = next(n for n in g if "counts_micro_batches" in n.marks)
    change_count(g, lambda old: g.create("Sub", [old, g.inputs[0]]))
    divisor = find_divisor(g)
    assert divisor is not None
    assert divisor.op.name == "Mul"
    left = divisor.operand(0)
    assert isinstance(left, Node)
    assert (left.op.name, left.operand(0)) == ("Sub", count)


def test_a_count_that_is_the_divisor_hands_its_mark_on() -> None:
    g = normalised()
    old = find_divisor(g)
    change_count(g, lambda count: g.create("Sub", [count, g.inputs[0]]))
    new = find_divisor(g)
    assert new is not None
    assert new is not old
    assert new.op.name == "Sub"
    assert all(n.operand(1) is not old for n in g if n.op.name == "RealDiv")


def test_forgotten() -> None:
    g = normalised()
    divisor = find_divisor(g)
    assert divisor is not None
    forget_divisor(divisor)
    assert find_divisor(g) is None
    assert divisor.name == "Mul.normalisation"


def test_the_division_that_makes_a_gradient() -> None:
    g = normalised()
    for user, i in (("d", 0), ("r", 1)):
        quotient = node(g, user).operand(i)
        assert isinstance(quotient, Node)
        division = division_of(quotient)
        assert division is not None
        assert division.op.name == "RealDiv"
    assert division_of(node(g, "a")) is None
    other = g.create("RealDiv", [node(g, "a"), g.inputs[0]])
    assert division_of(other) is None  # by something else
    by_a_node = g.create("RealDiv", [node(g, "a"), node(g, "c")])
    assert division_of(by_a_node) is None
