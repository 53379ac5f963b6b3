"""A tensor that is written in place, where nothing says what readers get."""

from __future__ import annotations

import pytest
from boost_compile.ir.text import parse_program

import boost_compile as bc

HEAD = """
state %w: float32[2] role=weight
graph @step(%x: float32[2]) {
  %y = Exp(%x) : float32[2] primal {unique_id = "1"}
  %g = Neg(%y) : float32[2] primal {forward_unique_id = "1"}
"""


def test_nothing_says_which_comes_first() -> None:
    program = parse_program(f"""{HEAD}
  %half = InplaceMuls(%g, 0.5, umonad) {{side_effect_mem = true}} : float32[2]@t
  %u1 = UpdateState(umonad, %half)
  %other = Square(%g) : float32[2]
  %down = AssignSub(%w, %other, %u1)
  %u2 = UpdateState(%u1, %down)
  %r = Depend(%y, %u2)
  return %r
}}""")
    with pytest.raises(bc.Error, match=r"InplaceMuls.* writes a tensor in place that .*Square.* which comes first"):
        bc.compile(program, "dead-code-elimination")


def test_a_caller_who_reads_what_a_function_writes() -> None:
    program = parse_program(f"""{HEAD}
  %done = call(@scaled, %g, umonad) : float32[2]
  %u1 = UpdateState(umonad, %done)
  %down = AssignSub(%w, %g, %u1)
  %u2 = UpdateState(%u1, %down)
  %r = Depend(%y, %u2)
  return %r
  func @scaled(%v: float32[2], %u: umonad) {{
    %half = InplaceMuls(%v, 0.5, %u) {{side_effect_mem = true}} : float32[2]@t
    %t = UpdateState(%u, %half)
    %z = Depend(%half, %t)
    return %z
  }}
}}""")
    with pytest.raises(bc.Error, match=r"writes %g in place.* reads it afterwards"):
        bc.compile(program, "dead-code-elimination")


@pytest.mark.parametrize(
    ("view", "target"),
    [
        ("ExpandDimsView(%g, 0, umonad) {side_effect_mem = true} : float32[1,2]@t", "cpu"),
        ("Reshape(%g, (1, 2)) : float32[1,2]@t", "gpu"),
    ],
)
def test_a_write_through_a_view(view: str, target: str) -> None:
    program = parse_program(f"""{HEAD.replace("%g = Neg(%y) : float32[2]", "%g = Neg(%y) : float32[2]@t")}
  %v = {view}
  %half = InplaceMuls(%v, 0.5, umonad) {{side_effect_mem = true}} : float32[1,2]@t
  %u1 = UpdateState(umonad, %half)
  %down = AssignSub(%w, %g, %u1)
  %u2 = UpdateState(%u1, %down)
  %r = Depend(%y, %u2)
  return %r
}}""")
    with pytest.raises(bc.Error, match=r"through a view of it"):
        bc.compile(program, "dead-code-elimination", target=target)
