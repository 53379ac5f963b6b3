"""Copies in the backward part."""

from __future__ import annotations

from boost_compile.ir.core.primitives import CPU
from boost_compile.passes.recompute.budget import write
from boost_compile.passes.recompute.candidates import forward_of

from tests.graphs import graph, node


def test_a_piece_without_a_gradient_to_wait_for_is_told_and_left_alone() -> None:
    """The first node of the backward part that takes %a or %b runs before all gradients."""
    g = graph("""
graph @step(%x: float32[64]) {
  %a = Exp(%x) : float32[64] @f
  %b = Tanh(%a) : float32[64] @f
  %c = Exp(%b) : float32[64] @f
  %l = OnesLike(%c) : float32[64] @b
  %late = Neg(%l) : float32[64] @b
  %p = Mul(%a, %a) : float32[64] @b
  %q = Mul(%p, %b) : float32[64] @b
  %r = MakeTuple(%late, %q)
  return %r
}""")
    done = write(forward_of(g, CPU), lambda _: [{node(g, "a")}])
    assert (done.copied, done.unguarded) == ({}, {node(g, "a")})


def test_what_a_copy_takes_of_the_kept_values_waits_too() -> None:
    """%k is kept. What is read from a state is there anyway, and waits only where no other operand does."""
    g = graph("""
state %w: float32[64]
graph @step(%x: float32[64]) {
  %v = Load(%w, umonad) : float32[64] @f
  %k = Neg(%x) : float32[64] @f
  %a = Mul(%v, %v) : float32[64] @f
  %b = Mul(%a, %k) : float32[64] @f
  %c = Mul(%b, %v) : float32[64] @f
  %e = Mul(%k, %v) : float32[64] @f
  %d = Mul(%c, %e) : float32[64] @f
  %l = OnesLike(%d) : float32[64] @b
  %p = Mul(%l, %c) : float32[64] @b
  %s = Mul(%p, %e) : float32[64] @b
  %q = Mul(%s, %k) : float32[64] @b
  return %q
}""")
    done = write(forward_of(g, CPU), lambda _: [{node(g, name) for name in "abce"}])
    a, b, c, e = (done.copied[node(g, name)] for name in "abce")
    assert [v.op.name for v in a.operands] == ["Depend", "Depend"]  # type: ignore[attr-defined]
    assert (b.operand(0), b.operand(1).op.name, b.operand(1).operand(0)) == (a, "Depend", node(g, "k"))  # type: ignore[attr-defined]
    assert c.operands == (b, node(g, "v"))
    assert (e.operand(0), e.operand(1)) == (b.operand(1), node(g, "v")), "one Depend for all that take %k"
