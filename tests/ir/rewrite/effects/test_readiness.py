"""The order of effects by readiness: updates follow the backward part, and what touches one state keeps its order."""

from __future__ import annotations

from boost_compile.ir.analysis.effects.effect_list import list_effects
from boost_compile.ir.rewrite.effects.readiness import by_readiness
from boost_compile.ir.text import parse_program

STEP = """
state %a: float32[4] role=weight
state %b: float32[4] role=weight
graph @step(%x: float32[4]) {
  %g = Exp(%x)
  %h = Neg(%g)
  %first = AssignAdd(%a, %h, umonad) : float32[4]@a
  %u = UpdateState(umonad, %first)
  %second = AssignAdd(%b, %g, %u) : float32[4]@b
  %v = UpdateState(%u, %second)
  %third = AssignAdd(%a, %x, %v) : float32[4]@a
  %w = UpdateState(%v, %third)
  %r = Depend(%h, %w)
  return %r
}
"""


def test_what_is_ready_first_comes_first_and_one_state_keeps_its_order() -> None:
    """%second's operand is there before %first's; %third's is there at once, but %first writes the same state."""
    graph = parse_program(STEP).graphs["step"]
    found = by_readiness(graph, list_effects(graph, None).effects)
    assert [effect.node.name for effect in found] == ["second", "first", "third"]
