"""The gradients that copies wait for."""

from __future__ import annotations

from collections.abc import Iterable

from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.primitives import CPU
from boost_compile.passes.recompute.budget import write
from boost_compile.passes.recompute.candidates import forward_of
from boost_compile.passes.recompute.clones import Copies

from tests.graphs import graph, node


def _copied(of: Graph, *pieces: Iterable[str]) -> Copies:
    """The pieces, each a few names, run again; writing them finds an order of all nodes, or is an error."""
    return write(forward_of(of, CPU), lambda _: [{node(of, name) for name in piece} for piece in pieces])


def _waits_for(done: Copies, of: Graph, name: str) -> str:
    """The gradient that the copy of a node waits for."""
    guard = done.copied[node(of, name)].operand(0)
    assert guard.op.name == "Depend"  # type: ignore[attr-defined]
    (gradient,) = guard.operand(1).operands  # type: ignore[attr-defined]
    return gradient.name


def test_a_piece_whose_first_user_takes_no_gradient_waits_for_the_last_one_that_runs_before_it() -> None:
    """Two losses: that of %b comes first, and %g2 is computed while the other one still goes forward to %e."""
    g = graph("""
graph @step(%x: float32[64]) {
  %a = Exp(%x) : float32[64] @f
  %b = Tanh(%a) : float32[64] @f
  %c = Exp(%a) : float32[64] @f
  %d = Exp(%c) : float32[64] @f
  %e = Exp(%d) : float32[64] @f
  %l = OnesLike(%b) : float32[64] @b
  %g1 = Neg(%l) : float32[64] @b
  %g2 = Neg(%g1) : float32[64] @b
  %q = Mul(%e, %a) : float32[64] @b
  %r = MakeTuple(%g2, %q)
  return %r
}""")
    assert _waits_for(_copied(g, "a"), g, "a") == "g2"


def test_a_slope_that_needs_no_gradient_is_none() -> None:
    """%k, as in LeakyReLU, compares two forward values. Its copies wait for %g, which needs %d: so nothing that comes
    before %g may wait for %k."""
    g = graph("""
graph @step(%x: float32[64]) {
  %a = Exp(%x) : float32[64] @f
  %s = Neg(%a) : float32[64] @f
  %c = Exp(%s) : float32[64] @f
  %d = Exp(%c) : float32[64] @f
  %k = Less(%a, %s) : bool[64] @b
  %q = Mul(%d, %d) : float32[64] @b
  %g = Neg(%q) : float32[64] @b
  %h = Select(%k, %g, %q) : float32[64] @b
  %r = Mul(%h, %s) : float32[64] @b
  return %r
}""")
    done = _copied(g, "as", "d")
    assert done.unguarded == {node(g, "d")}
    assert set(done.copied) == {node(g, "a"), node(g, "s")}
    assert _waits_for(done, g, "a") == "g"


def test_a_cell_that_trains_twice_has_gradients_of_each_time() -> None:
    """%f1 reads %w before it is updated, so its copy cannot wait for what comes of the second time."""
    g = graph("""
state %w: float32[64]
graph @step(%x: float32[64]) {
  %w1 = Load(%w, umonad) : float32[64] @f
  %f1 = Mul(%x, %w1) : float32[64] @f
  %t1 = Tanh(%f1) : float32[64] @f
  %l1 = OnesLike(%t1) : float32[64] @b
  %g1 = TanhGrad(%t1, %l1) : float32[64] @b
  %p1 = Mul(%g1, %f1) : float32[64] @b
  %a1 = AssignSub(%w, %p1, umonad) : float32[64]@w
  %u1 = UpdateState(umonad, %a1)
  %w2 = Load(%w, %u1) : float32[64] @f
  %f2 = Mul(%x, %w2) : float32[64] @f
  %t2 = Tanh(%f2) : float32[64] @f
  %l2 = OnesLike(%t2) : float32[64] @b
  %g2 = TanhGrad(%t2, %l2) : float32[64] @b
  %p2 = Mul(%g2, %f2) : float32[64] @b
  %a2 = AssignSub(%w, %p2, %u1) : float32[64]@w
  %u2 = UpdateState(%u1, %a2)
  %r = Depend(%t2, %u2)
  return %r
}""")
    done = _copied(g, ["f1"], ["f2"])
    assert [_waits_for(done, g, name) for name in ("f1", "f2")] == ["g1", "g2"]


def test_a_copy_that_is_there_already_runs_behind_what_it_waits_for() -> None:
    """%again came with another pass. %q is computed from it, so a copy of %a, which %k needs, could not wait for %q."""
    g = graph("""
graph @step(%x: float32[64]) {
  %a = Exp(%x) : float32[64] @f
  %k = Neg(%a) : float32[64] @b
  %b = Tanh(%a) : float32[64] @f
  %c = Exp(%b) : float32[64] @f
  %l = Neg(%c) : float32[64] @b
  %wait = MakeTuple(%k)
  %late = Depend(%b, %wait) : float32[64] @b
  %again = Neg(%late) : float32[64] @b
  %q = Mul(%l, %again) : float32[64] @b
  %g = Mul(%q, %k) : float32[64] @b
  return %g
}""")
    assert _copied(g, "a").unguarded == {node(g, "a")}
