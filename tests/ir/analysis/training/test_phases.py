"""How many updates a node comes after."""

from __future__ import annotations

from boost_compile.ir.core.primitives import CPU
from boost_compile.passes.recompute.candidates import forward_of

from tests.graphs import graph, node

TWICE = """
state %w: float32[2]
state %mean: float32[2]
graph @step(%x: float32[2]) {
  %w1 = Load(%w, umonad) : float32[2] @f
  %f1 = Mul(%x, %w1) : float32[2] @f
  %seen = Assign(%mean, %f1, umonad) : float32[2]@mean @f
  %u0 = UpdateState(umonad, %seen)
  %l1 = OnesLike(%f1) : float32[2] @b
  %a1 = AssignSub(%w, %l1, %u0) : float32[2]@w
  %u1 = UpdateState(%u0, %a1)
  %w2 = Load(%w, %u1) : float32[2] @f
  %f2 = Mul(%x, %w2) : float32[2] @f
  %own = Mul(%f2, %w) : float32[2] @f
  %l2 = OnesLike(%own) : float32[2] @b
  %g2 = Mul(%l2, %f2) : float32[2] @b
  %r = Depend(%g2, %u1)
  return %r
}"""


def test_updates_count_and_what_the_network_writes_does_not() -> None:
    g = graph(TWICE)
    phase = forward_of(g, CPU).phase
    assert [phase[node(g, name)] for name in ("w1", "f1", "seen", "u0", "l1")] == [0] * 5
    assert [phase[node(g, name)] for name in ("a1", "u1", "w2", "f2", "g2")] == [1] * 5


def test_a_state_that_was_updated_before_is_not_read_again() -> None:
    """A copy takes a state that stands as an operand by its value at the start, which is another one by then."""
    g = graph(TWICE)
    obstacles = forward_of(g, CPU).obstacles
    assert obstacles[node(g, "own")] == "it reads a state that was updated before"
    assert obstacles[node(g, "f2")] == ""
