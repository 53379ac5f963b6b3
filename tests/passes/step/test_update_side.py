"""The effects that a skipped update leaves out."""

from __future__ import annotations

from boost_compile.ir.rewrite.effects.editing import Effects
from boost_compile.passes.step.update_side import update_effects

from tests.graphs import graph

STEP = """
state %w: float32[2]
state %mean: float32[2]
state %count: float32[]
state %tick: float32[]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %statistic = Assign(%mean, %y, umonad) : float32[2] @f
  %loss = ReduceSum(%y, (), false) @f
  %g = Mul(%x, %x) @b
  %u = UpdateState(umonad, %y, %statistic)
  %up = AssignSub(%w, %g, %u)
  %u1 = UpdateState(%u, %up)
  %counted = AssignAdd(%count, float32[]<1.0>, %u1)
  %u2 = UpdateState(%u1, %counted)
  %both = call(@two, %count, %tick, %u2) : bool[]
  %u3 = UpdateState(%u2, %both)
  %shown = Print(%g, iomonad) : bool[]
  %i = UpdateState(iomonad, %shown)
  %l = Load(%w, %u3)
  %n = Neg(%l)
  %pair = MakeTuple(%loss, %n)
  %r1 = Depend(%pair, %u3)
  %r = Depend(%r1, %i)
  return %r
  func @two(%a: float32[], %b: float32[], %u: umonad) {
    %s = AssignAdd(%a, float32[]<1.0>, %u)
    %t = UpdateState(%u, %s)
    %s2 = AssignAdd(%b, float32[]<1.0>, %t)
    %t2 = UpdateState(%t, %s2)
    %z = Depend(true, %t2)
    return %z
  }
}"""


def test_writes_of_the_update_side_but_for_those_of_the_cycle_alone() -> None:
    """Neither what the network writes, nor what is only read or shown."""
    found = update_effects(Effects(graph(STEP)), {"count": "counter", "tick": "hyperparameter", "w": "weight"})
    assert [e.node.name for e in found] == ["up", "both"]
