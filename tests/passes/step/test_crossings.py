"""Where gradients leave the backward part."""

from __future__ import annotations

from boost_compile.passes.step.crossings import crossings, takes_value

from tests.graphs import graph, node


def test_uses_of_backward_floats_by_the_update_side() -> None:
    g = graph("""
state %w: float32[2]
state %rate: float32[]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %loss = ReduceSum(%y, (), false) @f
  %seed = OnesLike(%y) @b
  %g = Mul(%seed, %x) @b
  %rows = Cast(%g, 34) : int32[2] @b
  %z = ZerosLike(%g)
  %half = Mul(%g, float32[]<0.5>)
  %idle = Neg(%rows)
  %u = UpdateState(umonad, %y, %g)
  %up = ApplyGradientDescent(%w, %rate, %half, %u) : float32[2]
  %end = UpdateState(%u, %up)
  %r = Depend(%loss, %end)
  return %r
}""")
    assert [(user.name, i) for user, i in crossings(g)] == [("half", 0)]
    assert not takes_value(node(g, "z"), 0)
    assert not takes_value(node(g, "u"), 2)
    assert takes_value(node(g, "half"), 0)
