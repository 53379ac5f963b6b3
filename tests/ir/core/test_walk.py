"""Walks: each value once, what stops them, and no limit of depth."""

from __future__ import annotations

from itertools import islice

from boost_compile.ir.core.graph import Graph, Value
from boost_compile.ir.core.types import tensor
from boost_compile.ir.core.walk import (
    carried_operands,
    live_nodes,
    needed_nodes,
    needed_only_by,
    result_value,
    through,
    unpacked,
    untied_operands,
    walk,
    without_order,
)
from boost_compile.ir.text import parse_program

TEXT = """
state %w: float32[2]
graph @step(%x: float32[2]) {
  %old = Load(%w, umonad)
  %new = Assign(%w, %x, umonad) : float32[2]
  %t = UpdateState(umonad, %new)
  %late = Load(%w, %t) : float32[2]
  %unused = Neg(%x)
  %held = Depend(%old, %late)
  %result = Depend(%held, %t)
  return %result
}
"""


def step() -> tuple[Graph, dict[str, Value]]:
    graph = parse_program(TEXT).graphs["step"]
    return graph, {v.name: v for v in (*graph.inputs, *graph.states.values(), *graph)}


def test_a_walk_meets_each_thing_once_and_ends_in_a_circle() -> None:
    edges = {1: [2, 3], 2: [4], 3: [4, 1], 4: [1]}
    assert list(walk([1, 1], edges.__getitem__)) == [1, 3, 4, 2]
    assert list(walk([], edges.__getitem__)) == []


def test_who_has_seen_enough_stops() -> None:
    assert list(islice(walk([0], lambda n: [n + 1]), 3)) == [0, 1, 2]


def test_a_deep_graph() -> None:
    graph = Graph("deep")
    value: Value = graph.add_input("x", tensor("float32"))
    for _ in range(20_000):
        value = graph.create("Neg", [value])
    graph.result = value
    assert len(live_nodes([value])) == 20_000
    assert sum(1 for _ in walk([value], carried_operands)) == 20_001


def test_needed_nodes_are_those_that_the_result_leads_to() -> None:
    graph, v = step()
    assert [n.name for n in needed_nodes(graph)] == ["old", "new", "t", "late", "held", "result"]
    x = v["x"]
    first = graph.create("Neg", [x])
    unused = graph.create("Exp", [first])
    assert needed_nodes(graph) == [n for n in graph if n in live_nodes([graph.result])]
    first.set_operand(0, graph.create("Abs", [x]))  # stands behind its user, which nothing needs
    assert unused.operand(0) is first
    assert [n.name for n in needed_nodes(graph)] == ["old", "new", "t", "late", "held", "result"]


def test_the_result_without_what_only_orders() -> None:
    graph, v = step()
    assert result_value(graph) is v["old"]
    assert without_order(v["x"]) is v["x"]
    assert through(v["result"], ("Depend", "Load")) is v["w"]
    assert through(v["late"], ("Depend",)) is v["late"]


def test_operands_that_carry_values() -> None:
    _, v = step()
    assert carried_operands(v["held"]) == [v["old"]]
    assert carried_operands(v["late"]) == [v["w"]]
    assert carried_operands(v["x"]) == []


def test_operands_but_for_tokens() -> None:
    graph, v = step()
    nodes = {node.name: node for node in graph}
    assert untied_operands(nodes["held"]) == [v["old"], v["late"]]
    assert untied_operands(nodes["result"]) == [v["held"]]


def test_live_nodes_are_all_that_the_result_needs() -> None:
    graph, v = step()
    assert {node.name for node in live_nodes([graph.result])} == {"old", "new", "t", "late", "held", "result"}
    assert {node.name for node in live_nodes([graph.result], tokens=False)} == {"old", "late", "held", "result"}
    assert live_nodes(graph.inputs) == set()
    assert {node.name for node in live_nodes([v["unused"], v["old"], *graph.inputs])} == {"unused", "old"}


def test_what_some_nodes_alone_need() -> None:
    graph, v = step()
    x = v["x"]
    both, shared = graph.create("Neg", [x]), graph.create("Exp", [x])
    twice = graph.create("Mul", [shared, shared])
    first, second = graph.create("Add", [twice, both]), graph.create("Sub", [both, both])
    kept = graph.create("Abs", [shared])
    assert list(needed_only_by([first])) == [first, twice]
    assert set(needed_only_by([first, second])) == {first, second, twice, both}
    assert set(needed_only_by([first, second, kept])) == {first, second, kept, twice, both, shared}
    assert set(needed_only_by([first, second], {both})) == {first, second, twice}


def test_tuples_that_were_made_here_are_taken_apart_in_order() -> None:
    graph = Graph("packed")
    a, b, c, given = (graph.add_input(name, tensor("float32")) for name in ("a", "b", "c", "given"))
    inner = graph.create("MakeTuple", [b, c])
    outer = graph.create("MakeTuple", [a, inner])
    assert unpacked([outer, given]) == [a, b, c, given]
