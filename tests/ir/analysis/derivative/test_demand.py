"""Walking the demand for a multiplied gradient up to the seeds; zeros; the terms of one primitive."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.derivative import linearity
from boost_compile.ir.analysis.derivative.components import Zeros, leaves
from boost_compile.ir.analysis.derivative.derivative import Derivative, Terms
from boost_compile.ir.analysis.derivative.linearity import find_seeds
from boost_compile.ir.analysis.functions.closures import Closures
from boost_compile.ir.analysis.training.network import network_parts
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.core.errors import AnatomyError
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.types import TupleType, tensor
from boost_compile.ir.rewrite.scale_seeds import scale_seeds

from tests.ir.worked import worked


def terms_of(graph: Graph, *assumed: str) -> Terms:
    return Terms(Derivative(graph, network_parts(graph), Closures(graph)), frozenset(assumed))


def test_the_worked_graph() -> None:
    graph, nodes, comments = worked(linearity)
    (seed,) = find_seeds(graph, network_parts(graph), [(nodes["new"], 1)])
    (name,) = [name for name, comment in comments.items() if comment == "the seed"]
    assert seed.value is nodes[name]
    assert seed.uses == [(nodes["dz"], 0)]
    passed = [nodes[name] for name, comment in comments.items() if comment.startswith("passed")]
    assert [terms_of(graph).of(node) for node in passed] == [(0,)] * 2


def test_what_only_one_of_two_uses_wants_is_multiplied_on_the_way_to_that() -> None:
    graph, nodes, _ = worked(linearity)
    with graph.inserting_before(nodes["new"]):
        other = graph.create("Add", [nodes["loss"], nodes["dz"]], tensor("float32", 2))
    nodes["result"].set_operand(0, other)
    (seed,) = find_seeds(graph, network_parts(graph), [(nodes["new"], 1)])
    assert (seed.value, seed.uses) == (nodes["dz"], [(nodes["g"], 0)])


def test_what_is_not_linear_is_refused_unless_it_is_assumed() -> None:
    graph, nodes, _ = worked(linearity)
    with graph.inserting_before(nodes["g"]):
        bent = graph.create("Tanh", [nodes["dz"]], tensor("float32", 2))
    bent.primal = dict(nodes["dz"].primal)
    nodes["g"].set_operand(0, bent)
    wanted = [(nodes["new"], 1)]
    with pytest.raises(AnatomyError, match="Tanh is not known to be linear"):
        find_seeds(graph, network_parts(graph), wanted)
    (seed,) = find_seeds(graph, network_parts(graph), wanted, assume_linear=["Tanh"])
    assert seed.value is nodes["ones"]


def test_scaled_seeds() -> None:
    graph, nodes, _ = worked(linearity)
    seeds = find_seeds(graph, network_parts(graph), [(nodes["new"], 1)])
    (product,) = scale_seeds(graph, seeds, graph.constant(scalar_tensor("float32", 8.0)), scope="s")
    assert (product.op.name, product.operand(0)) == ("Mul", nodes["ones"])
    assert nodes["dz"].operand(0) is product
    assert [user.name for user in nodes["ones"].users] == [product.name]


def test_zeros() -> None:
    graph = Graph("g")
    x = graph.add_input("x", tensor("float32", 2))
    none = graph.create("ZerosLike", [x])
    made = [
        graph.create("Mul", [x, none]),
        graph.create("Add", [none, none]),
        graph.create("Add", [none, x]),
        graph.create("MakeTuple", [x, none]),
    ]
    graph.result = made[-1]
    zeros = Zeros(graph)
    assert [zeros.is_zero(v) for v in (x, none, *made[:3])] == [False, True, True, True, False]
    assert [zeros.is_zero(made[3], (i,)) for i in range(2)] == [False, True]
    assert zeros.is_zero(graph.constant(scalar_tensor("float32", 0.0)))
    assert not zeros.is_zero(graph.constant(scalar_tensor("float32", -1.0)))


def test_the_places_of_tensors_of_floats() -> None:
    inner = TupleType((tensor("float16"), tensor("int32")))
    assert list(leaves(TupleType((inner, tensor("complex64"))))) == [(0, 0), (1,)]
    assert list(leaves(tensor("float32"))) == [()]
