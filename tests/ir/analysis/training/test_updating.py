"""What updates of weights follow from, and what a cell computes beside them."""

from __future__ import annotations

from boost_compile.ir.analysis.functions.calls import bindings
from boost_compile.ir.analysis.training import updating
from boost_compile.ir.analysis.training.network import network_parts
from boost_compile.ir.analysis.training.updating import updating_values
from boost_compile.ir.core.graph import Graph, Node, State

from tests.graphs import graph
from tests.ir.worked import worked


def names(graph: Graph, *weights: str) -> set[str]:
    found = updating_values(graph, network_parts(graph), bindings(graph), weights)
    return {value.name for value in found if isinstance(value, (Node, State))}


def test_the_worked_graph() -> None:
    graph, _, comments = worked(updating)
    found = names(graph, "w")
    assert {"new", "m1", "kept", "sum", "m0", "m", "g"} <= found
    assert found.isdisjoint({"norm", "result", "t", "y"})
    assert {name in found for name, comment in comments.items() if comment == "followed by it"} == {True}
    assert {name in found for name, comment in comments.items() if comment == "beside the update"} == {False}


def test_state_that_no_weight_follows_from_stands_beside() -> None:
    g, _, _ = worked(updating)
    assert {"kept", "sum"} <= names(g, "m")
    assert "new" not in names(g, "m")


CALLED = """
state %w: float32[2]
graph @step(%x: float32[2]) {
  func @update(%v: float32[2], %d: float32[2]) {
    %up = AssignSub(%v, %d, umonad) : float32[2]
    %z = ReduceSum(%up, (), false, false) : float32[]
    return %z
  }
  func @leave(%v2: float32[2], %d2: float32[2]) {
    return float32[]<0.0>
  }
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %g = Mul(%x, %x) @b
  %half = Mul(%g, float32[]<0.5>)
  %other = Mul(%g, float32[]<0.25>)
  %size = ReduceMax(%g, (0,), false) : float32[]
  %small = Less(%size, float32[]<1.0>) : bool[]
  %a = Partial(@update, %w, %half)
  %b = Partial(@leave, %w, %half)
  %s = Switch(%small, %a, %b) : union<@update, @leave>
  %c = call(%s) : float32[]
  %r = Depend(%c, %y)
  return %r
}"""


def test_arguments_of_functions_and_what_a_switch_decides_by_count() -> None:
    found = names(graph(CALLED), "w")
    assert {"up", "half", "size", "small"} <= found
    assert "other" not in found
