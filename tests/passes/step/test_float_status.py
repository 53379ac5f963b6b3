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
from boost_compile.passes.step.float_status import float_status

import boost_compile as bc
from tests.graphs import graph, node
from tests.material import material

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


def check(program: bc.Program) -> None:
    fed = [g for g in program.graphs.values() if g.inputs]
    assert fed
    for step in fed:
        cleared, read = only(step, "NPUClearFloatStatusV2"), only(step, "NPUGetFloatStatusV2")
        parts = network_parts(step)
        loss = next(v for v in cleared.operand(0).operands if isinstance(v, Node))  # type: ignore[attr-defined]
        assert parts.get(loss) != BACKWARD
        backward = {n for n in step if parts.get(n) == BACKWARD}
        before_reading = live_nodes([read])
        # All products of backward that the update side takes are there before the flag is read.
        taken = {user.operand(i) for user, i in crossings(step)}
        assert taken
        assert taken <= before_reading
        # And what backward computes from tensors of forward comes after the flag was cleared.
        computing = [
            n for n in backward & before_reading if any(parts.get(v) == FORWARD and tensor(v) for v in n.operands)
        ]
        assert computing
        assert [n for n in computing if cleared not in live_nodes([n])] == []
    for step in program.graphs.values():
        assert not any(n.op.name == "IsFinite" for body in step.all_graphs() for n in body)
        for body in step.all_graphs():
            for n in body:
                if n.origin is not None:
                    assert has_kernel(n, ASCEND), n


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("name", ["mlp", "branch"])
def test_the_flag_spans_the_backward_part(name: str, pipeline: str) -> None:
    source = material(name)
    source.target = ASCEND
    check(bc.compile(source, pipeline))


WITHOUT_LOSS = """
state %w: float32[2]
state %rate: float32[]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %pair = MakeTuple(%y, %y) @f
  %of_forward = Mul(%y, float32[2]<1.0, 2.0>) @b
  %of_nothing = Neg(float32[2]<1.0, 2.0>) @b
  %of_a_tuple = AddN(%pair) @b
  %of_input = Neg(%x) @b
  %after = Mul(%of_forward, %y) @b
  %sum = MakeTuple(%after, %of_a_tuple, %of_input, %of_nothing)
  %g = AddN(%sum)
  %u = UpdateState(umonad, %y)
  %up = ApplyGradientDescent(%w, %rate, %g, %u) : float32[2]
  %end = UpdateState(%u, %up)
  %r = Depend(true, %end)
  return %r
}"""


def test_all_that_backward_begins_with_waits_for_the_cleared_flag() -> None:
    """Without a loss it is cleared after the tensors that backward begins with."""
    g = graph(WITHOUT_LOSS)
    answer = float_status(g, None, scope="status")
    assert str(answer.type) == "bool[]"
    cleared, read = only(g, "NPUClearFloatStatusV2"), only(g, "NPUGetFloatStatusV2")
    behind = [n for n in g if n.name in ("of_forward", "of_a_tuple", "of_input")]
    assert all(cleared in live_nodes([n]) for n in behind)
    (begins,) = (v for v in cleared.operand(0).operands if isinstance(v, Node))  # type: ignore[attr-defined]
    assert set(begins.operands) == {node(g, "y"), g.inputs[0]}
    (ends,) = (v for v in read.operand(0).operands if isinstance(v, Node))  # type: ignore[attr-defined]
    assert {v.name for v in ends.operands} == {"after", "of_a_tuple", "of_input", "of_nothing"}
    assert {n.scope for n in g if n.name not in {o.name for o in graph(WITHOUT_LOSS)}} == {"status"}
    direct = [n for n in g if n.op.name == "Depend" and n.operand(1) is cleared]
    assert {u.name for n in direct for u in n.uses} == {"of_forward", "of_a_tuple", "of_input"}
    assert {n.operand(0).name for n in direct} == {"y", "pair", "x"}


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_flag_is_cleared_after_forward_and_read_after_backward(
    name: str, pipeline: str, exported: Any, tmp_path: Path
) -> None:
    program = bc.compile(ascend(exported(name)), pipeline)
    check(program)
    import mindspore

    program.save(str(tmp_path / "whole.mindir"))
    assert mindspore.load(str(tmp_path / "whole.mindir")) is not None


def test_other_targets_have_no_flag(exported: Any) -> None:
    with pytest.raises(bc.Error, match="only Ascend has"):
        bc.compile(bc.load(str(exported("mlp"))), "overflow-check{detect=status}")
