"""The overflow flag of a saturating Ascend, by structure (no such device was at hand): what the check waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from boost_compile.ir.analysis.targets import has_kernel
from boost_compile.ir.analysis.training.network import BACKWARD, FORWARD, network_parts
from boost_compile.ir.core.graph import Graph, Node
from boost_compile.ir.core.primitives import ASCEND
from boost_compile.ir.core.types import TensorType
from boost_compile.ir.core.walk import live_nodes
from boost_compile.passes.step.crossings import crossings

import boost_compile as bc

NETWORKS = ["mlp", "lenet_bn", "gpt", "regression_mse", "two_heads", "branch"]
PIPELINES = [
    "overflow-check{detect=status}",
    "gradient-accumulation{steps=3},overflow-check{detect=status}",
    "gradient-accumulation{steps=3,split=fused},overflow-check{detect=status,policy=skip-micro},loss-scale",
]


def ascend(path: Any) -> bc.Program:
    program = bc.load(str(path))
    program.target = ASCEND
    return program


def only(graph: Graph, op: str) -> Node:
    (node,) = [n for n in graph if n.op.name == op]
    return node


def tensor(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.type, TensorType) and value.op.name != "Load"


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_flag_is_cleared_after_forward_and_read_after_backward(
    name: str, pipeline: str, exported: Any, tmp_path: Path
) -> None:
    source = ascend(exported(name))
    program = bc.compile(source, pipeline)
    fed = [g for g in program.graphs.values() if g.inputs]
    assert fed
    for graph in fed:
        cleared, read = only(graph, "NPUClearFloatStatusV2"), only(graph, "NPUGetFloatStatusV2")
        parts = network_parts(graph)
        loss = next(v for v in cleared.operand(0).operands if isinstance(v, Node))  # type: ignore[attr-defined]
        assert parts.get(loss) != BACKWARD
        backward = {n for n in graph if parts.get(n) == BACKWARD}
        before_reading = live_nodes([read])
        # All products of backward that the update side takes are there before the flag is read.
        taken = {user.operand(i) for user, i in crossings(graph)}
        assert taken
        assert taken <= before_reading
        # And what backward computes from tensors of forward comes after the flag was cleared.
        computing = [
            n for n in backward & before_reading if any(parts.get(v) == FORWARD and tensor(v) for v in n.operands)
        ]
        assert computing
        assert [n for n in computing if cleared not in live_nodes([n])] == []
    for graph in program.graphs.values():
        assert not any(n.op.name == "IsFinite" for body in graph.all_graphs() for n in body)
        for body in graph.all_graphs():
            for node in body:
                if node.origin is not None:
                    assert has_kernel(node, ASCEND), node
    import mindspore

    program.save(str(tmp_path / "whole.mindir"))
    assert mindspore.load(str(tmp_path / "whole.mindir")) is not None


def test_other_targets_have_no_flag(exported: Any) -> None:
    with pytest.raises(bc.Error, match="only Ascend has"):
        bc.compile(bc.load(str(exported("mlp"))), "overflow-check{detect=status}")
