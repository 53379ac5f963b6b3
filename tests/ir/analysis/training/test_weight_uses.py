"""Who takes a weight in the forward part."""

from __future__ import annotations

from boost_compile.ir.analysis.training.weight_uses import forward_uses

from tests.graphs import graph


def test_uses_behind_what_only_brings_the_weight() -> None:
    g = graph("""
state %w: float32[2]
state %b: float32[2]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) @f
  %half = Cast(%w0, 42) : float16[2] @f
  %wide = Cast(%half, 43) : float32[2]
  %y = Mul(%wide, %x) @f
  %z = Sub(%x, %w0) @f
  %pair = MakeTuple(%x, %w0) @f
  %many = AddN(%pair) @f
  %c = call(@inner, %b, %y) : float32[2] @f
  %loss = Mul(%c, %z) @f
  %g = Mul(%w0, %x) @b
  %waits = Depend(%loss, %w0) @f
  %out = Neg(%waits) @f
  %update = Mul(%w0, %g)
  %u = UpdateState(umonad, %update, %g)
  %a = Assign(%w, %update, %u)
  %v = UpdateState(%u, %a)
  %r = Depend(%out, %v)
  return %r
  func @inner(%bias: float32[2], %v: float32[2]) {
    %s = Add(%v, %bias) @f
    return %s
  }
}""")
    found = {name: {(user.name, i) for user, i in uses} for name, uses in forward_uses(g).items()}
    assert found == {"w": {("y", 0), ("z", 1), ("many", 0)}, "b": {("s", 1)}}


def test_a_graph_without_forward_has_none() -> None:
    g = graph("""
state %w: float32[2]
graph @apply() {
  %l = Load(%w, umonad)
  %n = Neg(%l)
  %u = UpdateState(umonad, %n)
  %a = Assign(%w, %n, %u)
  %v = UpdateState(%u, %a)
  %r = Depend(float32[]<0.0>, %v)
  return %r
}""")
    assert forward_uses(g) == {}
