"""The scalar that all gradients of a graph are divided by, and who divides by it."""

from __future__ import annotations

from boost_compile.ir.analysis.training.divisor import divides, find_divisor, quotients

from tests.graphs import graph, node

TEXT = """
graph @apply(%n: float32[], %g: float32[2], %h: float16[2]) {
  %d = Mul(%n, float32[]<2.0>) marks {stage = "normalisation"}
  %q = RealDiv(%g, %d)
  %i = RealDiv(%d, %n)
  %half = Cast(%d, 42) : float16[]
  %p = RealDiv(%h, %half)
  %both = Cast(%d, 42) : float16[]
  %s = RealDiv(%h, %both)
  %t = Mul(%h, %both)
  %r1 = Add(%p, %s)
  %r2 = Add(%r1, %t)
  %r = MakeTuple(%q, %i, %r2)
  return %r
}"""


def test_the_marked_node_and_its_quotients() -> None:
    g = graph(TEXT)
    divisor = node(g, "d")
    assert find_divisor(g) is divisor
    assert quotients(divisor) == {divisor: [node(g, "q")], node(g, "half"): [node(g, "p")]}
    assert divides(node(g, "q"), 1)
    assert not divides(node(g, "q"), 0)
    assert not divides(node(g, "i"), 0)  # it is what is divided there
    assert divides(node(g, "half"), 0)
    assert not divides(node(g, "both"), 0)  # one of its users multiplies


def test_without_a_mark_there_is_none() -> None:
    assert find_divisor(graph(TEXT.replace("normalisation", "unscale"))) is None
