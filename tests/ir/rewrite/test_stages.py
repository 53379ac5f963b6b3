"""Putting something on the path of a gradient."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training import gradient_path
from boost_compile.ir.analysis.training.gradient_path import gradient_paths
from boost_compile.ir.analysis.training.stages import GradientPath, Point
from boost_compile.ir.core.errors import AnatomyError
from boost_compile.ir.core.graph import Graph, Node, Value
from boost_compile.ir.core.names import STAGE
from boost_compile.ir.core.types import tensor
from boost_compile.ir.rewrite.stages import merge, put, summed

from tests.ir.worked import worked


def negated(graph: Graph, value: Value) -> Value:
    return graph.create("Neg", [value], name="negated")


def test_put_replaces_the_gradient_for_all_who_take_it_on_or_measure_it() -> None:
    graph, nodes, _ = worked(gradient_path)
    (path,) = gradient_paths(graph)
    before = [point.stage for point in path.points]
    assert put(path, "finite-check", negated) is graph
    (made,) = path.at("finite-check").values
    assert isinstance(made, Node)
    assert made.marks[STAGE] == "finite-check"
    assert made.operands == (nodes["s"],)
    assert {user.name for user in made.users} == {"norm", "c"}
    assert {user.name for user in nodes["s"].users} == {"negated"}
    assert [point.stage for point in path.points] == [*before[:3], "finite-check", *before[3:]]
    graph.sort()
    (again,) = gradient_paths(graph)
    assert [point.stage for point in again.points] == [point.stage for point in path.points]


def test_put_in_front_of_the_update() -> None:
    graph, nodes, _ = worked(gradient_path)
    (path,) = gradient_paths(graph)
    put(path, "centralize", negated)
    assert nodes["new"].operand(3).name == "negated"


def test_a_gradient_that_nothing_uses() -> None:
    _, nodes, _ = worked(gradient_path)
    with pytest.raises(AnatomyError, match="weight 'w' is used by nothing"):
        put(GradientPath("w", [Point("", (nodes["g"],))]), "clip", negated)


def summands() -> tuple[Graph, Node, GradientPath]:
    graph = Graph("step")
    x, y = (graph.add_input(name, tensor("float32", 2)) for name in "xy")
    a, b = (graph.create("Neg", [v], name=f"d{v.name}") for v in (x, y))
    taken = graph.create("Add", [a, b])
    graph.result = taken
    return graph, taken, GradientPath("w", [Point("", (a, b), [(taken, 0), (taken, 1)])])


def test_merge_makes_one_value_of_summands() -> None:
    _, taken, path = summands()
    totals: dict[tuple[Value, ...], Value] = {}
    values = path.points[0].values
    merge(path, "clip", totals, scope="clip")
    (one,) = path.points[0].values
    assert totals == {values: one}
    assert isinstance(one, Node)
    assert (one.op.name, one.operands) == ("Add", values)
    assert taken.operand(0) is one
    other = taken.operand(1)
    assert isinstance(other, Node)
    assert (other.op.name, other.operands) == ("ZerosLike", (values[1],))
    assert path.points[0].takers == [(taken, 0)]


def test_merge_takes_a_sum_that_exists() -> None:
    graph, taken, path = summands()
    own = graph.create("Add", list(path.points[0].values))
    merge(path, "clip", {path.points[0].values: own}, scope="clip")
    assert taken.operand(0) is own


def test_a_total_of_one_is_itself() -> None:
    graph, taken, _ = summands()
    before = len(graph)
    assert summed(Point("", (taken,))) is taken
    assert len(graph) == before
