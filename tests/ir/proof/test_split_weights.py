"""A weight whose parts the network takes apart: its gradient is joined of theirs, as that of nn.MultiheadAttention."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.graph import Node
from boost_compile.ir.proof.prover import prove

import boost_compile as bc
from tests.graphs import program as parsed

TEXT = """state %b: float32[4]<1.0, 2.0, 3.0, 4.0> role=weight
state %rate: float32[]<0.1>

graph @step(%x: float32[3,2], %y: float32[3,2]) -> (loss) {
  %l = Load(%b, umonad) : float32[4] @f1
  %half = Slice(%l, (0,), (2,)) : float32[2] @f2
  %rest = Slice(%l, (2,), (2,)) : float32[2] @f3
  %p = Mul(%x, %half) : float32[3,2] @f4
  %q = Mul(%y, %rest) : float32[3,2] @f5
  %sum = Add(%p, %q) : float32[3,2] @f6
  %loss = ReduceSum(%sum, (), false, false) : float32[] @f7
  %one = OnesLike(%sum) : float32[3,2] @b7
  %gp = Mul(%one, %x) : float32[3,2] @b4
  %gq = Mul(%one, %y) : float32[3,2] @b5
  %ga = ReduceSum(%gp, (0,), false, false) : float32[2] @b2
  %gb = ReduceSum(%gq, (0,), false, false) : float32[2] @b3
  %parts = MakeTuple(%ga, %gb) : (float32[2], float32[2]) @b1
  %g = Concat(%parts, 0) : float32[4] @b1
  %t = UpdateState(umonad, %l)
  %new = ApplyGradientDescent(%b, %rate, %g, %t) : float32[4]@b
  %u = UpdateState(%t, %new)
  %out = Depend(%loss, %u) : float32[]
  return %out
}
"""
PIPELINES = [
    "gradient-accumulation{steps=2}",
    "data-parallel",
    "data-parallel,overflow-check",
    "gradient-accumulation{steps=2},overflow-check,loss-scale",
    "data-parallel,gradient-accumulation{steps=2},clip-gradients{limit=0.1}",
]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_its_gradient_is_one(pipeline: str) -> None:
    original = parsed(TEXT)
    found = bc.prove(original, bc.compile(original, pipeline))
    assert found.proved, found


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("fault", ["order", "twice"])
def test_its_parts_have_places(pipeline: str, fault: str) -> None:
    """Neither the prover nor the checker takes the parts in another order, or one of them twice."""
    original = parsed(TEXT)
    program = bc.compile(original, pipeline)
    assert bc.prove(original, program).proved
    for joins in (n for g in program.graphs.values() for n in g if n.op.name == "Concat" and n.name == "g"):
        parts = joins.operand(0)
        assert isinstance(parts, Node)
        a, b = parts.operands
        parts.set_operand(1, a)
        if fault == "order":
            parts.set_operand(0, b)
    assert not prove(original, program)[0].proved
