"""Where gradients leave the backward part."""

from __future__ import annotations

from boost_compile.passes.step.crossings import accumulated, crossings, sums, takes_value

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


FED = """
state %w: float32[2]
state %v: float32[2]
state %sum: float32[2]
state %count: float32[]
graph @apply() {
  %n = Load(%count, umonad) : float32[] marks {stage = "normalisation"}
  %total = Load(%sum, umonad) : float32[2]
  %mean = RealDiv(%total, %n) : float32[2] marks {gradient = "w"}
  %fixed = TensorMove(float32[2]<0.5, 0.5>) : float32[2] marks {gradient = "v"}
  %zeros = ZerosLike(%mean) : float32[2]
  %new = Sub(%mean, %fixed) : float32[2]
  %up = Assign(%w, %new, umonad) : float32[2]
  %clear = Assign(%sum, %zeros, %up) : float32[2]
  %end = UpdateState(umonad, %up, %clear)
  %r = Depend(%new, %end)
  return %r
}"""


def test_gradients_that_come_from_accumulators_begin_at_their_mean_or_their_sum() -> None:
    g = graph(FED)
    mean, fixed = accumulated(g)
    assert (mean.weights, mean.value, [(u.name, i) for u, i in mean.uses]) == (("w",), node(g, "mean"), [("new", 0)])
    assert fixed.is_constant
    fixed.value.set_operand(0, node(g, "total"))
    assert not fixed.is_constant
    assert not mean.is_constant
    total, constant = sums(g)
    assert (total.value, total.uses, total.divided) == (node(g, "total"), [(node(g, "mean"), 0)], True)
    assert (constant.value, constant.divided) == (node(g, "fixed"), False)
