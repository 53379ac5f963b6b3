"""The way back through a loop is linear in the derivative; what is put in its way shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from boost_compile.ir.analysis.derivative.linearity import linear_calls
from boost_compile.ir.analysis.training.network import network_parts
from boost_compile.ir.core.graph import Graph, Node
from boost_compile.ir.core.op import CALL

import boost_compile as bc

LOOP = Path(__file__).parents[3] / "material" / "loop.ir"


def calls(graph: Graph) -> list[Node]:
    return [n for n in graph if n.op is CALL]


def test_the_derivative_is_what_a_way_back_is_linear_in() -> None:
    graph = bc.load(LOOP).graphs["step"]
    found = linear_calls(graph, network_parts(graph), calls(graph))
    forward, back = calls(graph)
    assert forward not in found
    assert found[back].operands == {1}
    items = {n.operand(1).literal for n in back.users if n.op.name == "TupleGetItem"}
    assert items <= found[back].items


@pytest.mark.parametrize("step", ["Square", "Exp", "Neg"])
def test_a_step_that_is_not_linear(step: str) -> None:
    graph = bc.load(LOOP).graphs["step"]
    body = next(f for f in graph.functions.values() if any(n.op.name == "TanhGrad" for n in f))
    node = next(n for n in body if n.op.name == "TanhGrad")
    with body.inserting_after(node):
        new = body.create(step, [node])
    node.replace_uses(new)
    new.set_operand(0, node)
    found = linear_calls(graph, network_parts(graph), calls(graph))
    assert bool(found) is (step == "Neg")
