"""Who uses a gradient, and for what."""

from __future__ import annotations

from boost_compile.ir.analysis.functions.calls import bindings
from boost_compile.ir.analysis.training import gradient_users
from boost_compile.ir.analysis.training.gradient_users import GradientUsers
from boost_compile.ir.analysis.training.network import network_parts
from boost_compile.ir.core.graph import Graph

from tests.graphs import graph, node
from tests.ir.worked import worked


def users_of(graph: Graph) -> GradientUsers:
    return GradientUsers(network_parts(graph), bindings(graph))


def test_the_worked_graph() -> None:
    graph, nodes, comments = worked(gradient_users)
    takers, measures = users_of(graph).of(nodes["g"])
    by_comment = {comment.partition(":")[0]: nodes[name] for name, comment in comments.items()}
    assert takers == [(by_comment["takes it on"], 0)]
    assert measures == [(by_comment["measures it"], 0)]
    assert by_comment["asks"] not in {user for user, _ in (*takers, *measures)}


def test_what_is_used_otherwise_too_is_taken_on() -> None:
    graph, nodes, _ = worked(gradient_users)
    nodes["scaled"].set_operand(0, nodes["inside"])
    takers, measures = users_of(graph).of(nodes["g"])
    assert [user.name for user, _ in takers] == ["inside"]
    assert [user.name for user, _ in measures] == ["norm"]


def test_what_only_waits_is_no_user() -> None:
    graph, nodes, _ = worked(gradient_users)
    with graph.inserting_before(nodes["t"]):
        graph.create("Depend", [nodes["loss"], nodes["g"]])
    takers, measures = users_of(graph).of(nodes["g"])
    assert {user.name for user, _ in (*takers, *measures)} == {"scaled", "norm"}


def test_what_is_returned_takes_the_gradient_on() -> None:
    g = graph("%g = Neg(%x) @b\n%finite = IsFinite(%g)\n%shown = Exp(%g)\nreturn %shown")
    takers, measures = users_of(g).of(node(g, "g"))
    assert (takers, measures) == ([(node(g, "shown"), 0)], [])


MOVES = """
state %w: float32[2]
state %v: float32[2]
graph @step(%x: float32[2], %p: bool[]) {
  %g = Neg(%x) @b
  %moved = call(@move, %w, %g, %x, umonad) : float32[2]
  %waits = Depend(%x, %g)
  %other = Assign(%v, %waits, umonad)
  %pair = MakeTuple(%x, %g)
  %sum = AddN(%pair) : float32[2]
  %up = Assign(%v, %sum, umonad)
  %u = UpdateState(umonad, %moved, %other, %up)
  %r = Depend(%x, %u)
  return %r
  func @move(%s: float32[2], %d: float32[2], %e: float32[2], %t: umonad) {
    %a = AssignAdd(%s, %d, %t)
    %u = UpdateState(%t, %a)
    %r = Depend(%e, %u)
    return %r
  }
}"""


def test_updates_through_functions_and_tuples_but_not_through_waiting() -> None:
    g = graph(MOVES)
    users = users_of(g)
    found = {(user.name, i): users.updated_by(user, i) for user, i in node(g, "g").use_sites()}
    assert found == {("moved", 2): {"w"}, ("waits", 1): set(), ("pair", 1): {"v"}}
    assert users.updated_by(node(g, "moved"), 3) == set()


def test_who_chooses_between_a_gradient_and_something_else_takes_it_on() -> None:
    g = graph("%g = Neg(%x) @b\n%c = Switch(true, %g, %x) : float32[2]\n%f = IsFinite(%c)\n%n = Exp(%x)\nreturn %n")
    assert users_of(g).of(node(g, "g")) == ([(node(g, "c"), 1)], [])


def test_the_states_that_are_updated_from_a_use() -> None:
    graph, nodes, _ = worked(gradient_users)
    users = users_of(graph)
    assert users.updated_by(nodes["scaled"], 0) == {"w"}
    assert users.updated_by(nodes["flag"], 0) == set()
