"""Which gradients a test for infinities and NaN sees."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.functions.calls import bindings
from boost_compile.ir.analysis.training.finiteness import gradients_behind
from boost_compile.ir.core.predicates import is_float_tensor

from tests.graphs import graph, node


def seen(body: str) -> set[str]:
    """The gradients (%g, %h) behind %t."""
    g = graph("%g = Neg(%x)\n%h = Exp(%x)\n" + body + "\nreturn %t")
    starts = {node(g, name): name for name in ("g", "h")}
    return {n.name for n in gradients_behind(node(g, "t"), starts, bindings(g))}


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("%t = Mul(%g, %h)", {"g", "h"}),
        ("%t = RealDiv(%g, %h)", {"g"}),  # a divisor that is infinite gives zero
        ("%t = Add(%g, %x)", {"g"}),
        ("%p = MakeTuple(%g, %h)\n%t = AddN(%p)", {"g", "h"}),
        ("%p = MakeTuple(%g, %h)\n%t = TupleGetItem(%p, 1)", {"h"}),
        ("%u = UpdateState(umonad, %h)\n%t = Depend(%g, %u)", {"g"}),
        ("%t = Depend(%g, %h)", {"g"}),
        ("%t = ClipByValue(%g, %h, %h) : float32[2]", set()),
        ("%t = Sign(%g) : float32[2]", set()),
        ("%t = Reshape(%g, (1, 2)) : float32[1,2]", {"g"}),
        ("%s = ReduceSum(%h, (), false)\n%t = Mul(%g, %s)", {"g"}),  # of another size: a factor
        ("%i = Cast(%h, 34) : int32[2]\n%f = Cast(%i, 43) : float32[2]\n%t = Mul(%g, %f)", {"g"}),
        ("%t = Cast(%g, 42) : float16[2]", {"g"}),
    ],
)  # fmt: skip
def test_through_what_carries_infinities(body: str, wanted: set[str]) -> None:
    assert seen(body) == wanted


def test_a_factor_is_not_seen_though_it_is_a_gradient_itself() -> None:
    """It may be zero, and then hides what it multiplies, not what it is."""
    g = graph("%g = Neg(%x)\n%h = ReduceSum(%x, (), false)\n%t = Mul(%g, %h)\nreturn %t")
    starts = {node(g, name): name for name in ("g", "h")}
    assert gradients_behind(node(g, "t"), starts, bindings(g)) == {node(g, "g")}


def test_inside_a_function() -> None:
    """An input that one caller gives the gradient is that gradient; with two callers it may be either."""
    text = """
  %g = Neg(%x)
  %a = call(@test, %g) : float32[2]
  %b = SECOND
  %r = Mul(%a, %b)
  return %r
  func @test(%v: float32[2]) {
    %t = Neg(%v)
    return %t
  }"""
    for second, wanted in (("Exp(%x)", {"g"}), ("call(@test, %x) : float32[2]", set())):
        g = graph(text.replace("SECOND", second))
        found = gradients_behind(node(g, "t"), {node(g, "g"): "w"}, bindings(g))
        assert {n.name for n in found} == wanted


def test_floats() -> None:
    g = graph("graph @g(%a: float16[2], %b: int32[2], %c: float32) {\nreturn %a\n}")
    assert [is_float_tensor(v) for v in g.inputs] == [True, False, False]
