"""Nodes of one scope: their types follow from what they take."""

from __future__ import annotations

from boost_compile.ir.builders.nodes import Nodes
from boost_compile.ir.core.graph import Graph, Node
from boost_compile.ir.core.types import DType, tensor


def test_shapes_of_products_reshapes_and_transposes() -> None:
    graph = Graph("g")
    n = Nodes(graph, "here")
    a, b = (graph.add_input(name, tensor("float16", 2, 3)) for name in "ab")
    assert n.matmul(a, b, transpose_b=True).type == tensor("float16", 2, 2)
    assert n.matmul(a, b, transpose_a=True).type == tensor("float16", 3, 3)
    assert n.transpose(a, 1, 0).type == tensor("float16", 3, 2)
    assert n.reshape(a, 6).type == tensor("float16", 6)
    assert n.reshape(a, 2, 3) is a, "nothing is to be done"
    assert {node.scope for node in graph} == {"here"}


def test_numbers_and_casts() -> None:
    graph = Graph("g")
    n = Nodes(graph, "here")
    assert n.number(2, "int32").type == tensor("int32")
    total = n.op("Add", n.number(1.0), n.number(2.0))
    assert total.type == tensor("float32")
    narrow = n.cast(total, DType.FLOAT16)
    assert isinstance(narrow, Node)
    assert (narrow.type, narrow.scope) == (tensor("float16"), "here")
