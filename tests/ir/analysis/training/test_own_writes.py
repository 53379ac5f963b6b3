"""What a cell writes to its weights besides their update."""

from __future__ import annotations

import inspect

import pytest
from boost_compile.ir.analysis.training import own_writes
from boost_compile.ir.text import parse_program

from tests.ir.worked import worked

GRAPH = inspect.cleandoc("""
    state %w: float32[2]
    state %m: float32[2]
    graph @step(%x: float32[2]) {
      %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
      %y = Mul(%w0, %x) : float32[2] primal {unique_id = "2"}
      %g = Mul(%x, %x) : float32[2] primal {forward_unique_id = "2"}
      %first = FIRST : float32[2]
      %t = UpdateState(umonad, %first)
      %m1 = Load(%m, %t) : float32[2]
      %then = THEN : float32[2]
      %t1 = UpdateState(%t, %then)
      %result = Depend(%y, %t1)
      return %result
    }
""")


def test_a_cell_that_bounds_its_weight() -> None:
    graph, nodes, _ = worked(own_writes)
    assert own_writes.own_writes(graph) == {nodes["bounded"]: "w"}


@pytest.mark.parametrize(
    ("first", "then", "own"),
    [
        ("AssignAdd(%m, %g, umonad)", "AssignSub(%w, %m1, %t)", []),  # by way of a slot
        ("AssignSub(%w, %g, umonad)", "AssignSub(%w, %g, %t)", []),  # twice by the gradient
        ("AssignSub(%w, %x, umonad)", "AssignSub(%w, %g, %t)", ["first"]),
        ("AssignSub(%w, %g, umonad)", "AssignSub(%w, %m1, %t)", ["then"]),  # nothing puts a gradient into m
    ],
)
def test_what_takes_a_gradient_is_an_update(first: str, then: str, own: list[str]) -> None:
    (graph,) = parse_program(GRAPH.replace("FIRST", first).replace("THEN", then)).graphs.values()
    assert [node.name for node in own_writes.own_writes(graph)] == own
