"""The worked graphs of the modules that find weights: update side, gradient sources, weights, the whole anatomy."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.functions.calls import bindings
from boost_compile.ir.analysis.training import anatomy, gradient_sources, update_side, weights
from boost_compile.ir.analysis.training.gradient_sources import GradientSources, handed
from boost_compile.ir.analysis.training.interpretation import Term, interpret
from boost_compile.ir.analysis.training.network import BACKWARD, OPTIMIZER, network_parts
from boost_compile.ir.analysis.training.update_side import UpdateSide
from boost_compile.ir.analysis.training.weights import find_weights
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.text import parse_program

from tests.ir.worked import worked


def side_of(graph: Graph) -> UpdateSide:
    parts = network_parts(graph)
    return update_side.update_side(graph, parts, bindings(graph), interpret(graph, parts))


def test_the_update_side() -> None:
    graph, nodes, comments = worked(update_side)
    side = side_of(graph)
    told = {name for name, comment in comments.items() if comment.startswith("update side")}
    assert {node.name for node, part in side.parts.items() if part == OPTIMIZER} == told
    assert {name: update_side.nodes_of(left) for name, left in side.versions.items()} == {"w": [nodes["new"]]}
    assert side.read == {"w"}


def version_of(graph: Graph) -> tuple[GradientSources, Term]:
    """What the only update of a graph leaves."""
    side = side_of(graph)
    (version,) = side.versions["w"]
    return GradientSources(side.parts, side.read), version


def test_the_walk_from_an_update_to_its_gradient() -> None:
    graph, nodes, _ = worked(gradient_sources)
    sources, new = version_of(graph)
    assert [term.value for term in handed(new)] == [nodes["scaled"]]
    assert sources.gradients(new, linear=True) == [nodes["g"]]
    nodes["scaled"].set_operand(0, nodes["w0"])
    sources, new = version_of(graph)
    assert sources.gradients(new, linear=True) == []


def test_a_sign_is_no_gradient_but_made_of_one() -> None:
    graph, nodes, _ = worked(gradient_sources)
    with graph.inserting_before(nodes["scaled"]):
        nodes["scaled"].set_operand(0, graph.create("Sign", [nodes["g"]]))
    sources, new = version_of(graph)
    assert sources.gradients(new, linear=True) == []
    assert sources.gradients(new, linear=False) == [nodes["g"]]


def test_a_slot_that_is_written_first_and_then_used() -> None:
    graph, nodes, _ = worked(weights)
    (found,) = find_weights(side_of(graph))
    assert (found.name, found.slots) == ("w", ("m",))
    assert found.gradient == (nodes["g"],)
    assert found.updates == (nodes["new"],)


def test_the_anatomy() -> None:
    graph, nodes, comments = worked(anatomy)
    found = anatomy.anatomy(graph)
    (weight,) = found.weights
    role_of = {name: comment for name, comment in comments.items() if name in graph.states}
    assert found.roles == role_of
    by_comment = {comment: nodes[name] for name, comment in comments.items() if name in nodes}
    assert found.loss is by_comment["loss"]
    assert found.part(by_comment["seed"]) == BACKWARD
    assert weight.gradient == (by_comment["gradient"],)
    assert weight.updates == (by_comment["update"],)


def test_what_the_network_reads_and_the_step_copies_is_no_slot() -> None:
    """A target network: other passes would take a slot for a part of the optimizer."""
    (graph,) = parse_program("""
        state %w: float32[2]
        state %target: float32[2]
        graph @step(%x: float32[2]) {
          %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
          %far = Load(%target, umonad) : float32[2] primal {unique_id = "2"}
          %y = Mul(%w0, %far) : float32[2] primal {unique_id = "3"}
          %g = Mul(%x, %far) : float32[2] primal {forward_unique_id = "3"}
          %new = AssignSub(%w, %g, umonad) : float32[2]
          %t = UpdateState(umonad, %new)
          %w1 = Load(%w, %t) : float32[2]
          %copied = Assign(%target, %w1, %t) : float32[2]
          %t1 = UpdateState(%t, %copied)
          %result = Depend(%y, %t1)
          return %result
        }
    """).graphs.values()
    (found,) = find_weights(side_of(graph))
    assert (found.name, found.slots, found.copies) == ("w", (), ("target",))
    assert anatomy.anatomy(graph).roles == {"w": "weight", "target": "statistic"}


ROWS = """
state %w: float32[4,2]
state %m: float32[4,2]
graph @step(%x: float32[3,2], %at: int32[3]) {
  %w0 = Load(%w, umonad) : float32[4,2] primal {unique_id = "1"}
  %y = Gather(%w0, %at, 0) : float32[3,2] primal {unique_id = "2"}
  %loss = ReduceSum(%y, (), false, false) : float32[] primal {unique_id = "3"}
  %g = Mul(%x, %x) : float32[3,2] primal {forward_unique_id = "2"}
  %half = Mul(%g, float32[]<0.5>) : float32[3,2]
  UPDATE
  %t = UpdateState(umonad, %new)
  %result = Depend(%loss, %t)
  return %result
}"""


@pytest.mark.parametrize(
    ("update", "slots"),
    [
        ("%new = ScatterSub(%w, %at, %half, umonad) : float32[4,2]", ()),
        ("%new = SparseApplyAdagrad(%w, %m, %half, %at, umonad) : float32[4,2]", ("m",)),
        ("%up = ScatterAdd(%m, %at, %half, umonad) : float32[4,2]\n  %new = AssignSub(%w, %up, umonad)", ("m",)),
        ("%sum = UnsortedSegmentSum(%half, %at, 4) : float32[4,2]\n  %new = AssignSub(%w, %sum, umonad)", ()),
    ],
    ids=["scattered", "optimizer", "slot", "summed"],
)
def test_a_gradient_of_rows(update: str, slots: tuple[str, ...]) -> None:
    """It is told by what takes it, and not by its shape."""
    graph = parse_program(ROWS.replace("UPDATE", update)).graphs["step"]
    (found,) = find_weights(side_of(graph))
    assert (found.name, found.slots, found.sparse) == ("w", slots, True)
    assert [node.name for node in found.gradient] == ["g"]


def test_a_gradient_of_as_many_rows_as_the_weight_has_is_not_sparse() -> None:
    graph, _, _ = worked(weights)
    assert [found.sparse for found in find_weights(side_of(graph))] == [False]
