"""A gradient of the weights alone, as that of a decay that stands in the loss: it is the same on all ranks."""

from __future__ import annotations

import pytest
from boost_compile.ir.proof.prover import prove

import boost_compile as bc
from tests.graphs import program as parsed

TEXT = """state %a: float32[2]<1.0, 2.0> role=weight
state %b: float32[3]<3.0, 4.0, 5.0> role=weight
state %rate: float32[]<0.1>

graph @step(%x: float32[2]) -> (loss) {
  %l = Load(%a, umonad) : float32[2] @f1
  %m = Load(%b, umonad) : float32[3] @f2
  %p = Mul(%l, %x) : float32[2] @f3
  %q = Mul(%m, %m) : float32[3] @f4
  %sum = ReduceSum(%p, (), false, false) : float32[] @f5
  %decay = ReduceSum(%q, (), false, false) : float32[] @f6
  %loss = Add(%sum, %decay) : float32[] @f7
  %one = OnesLike(%p) : float32[2] @b5
  %g = Mul(%one, %x) : float32[2] @b3
  %other = OnesLike(%q) : float32[3] @b6
  %half = Mul(%other, %m) : float32[3] @b4
  %h = Add(%half, %half) : float32[3] @b4
  %t = UpdateState(umonad, %l)
  %u = UpdateState(%t, %m)
  %na = ApplyGradientDescent(%a, %rate, %g, %u) : float32[2]@a
  %v = UpdateState(%u, %na)
  %nb = ApplyGradientDescent(%b, %rate, %h, %v) : float32[3]@b
  %w = UpdateState(%v, %nb)
  %out = Depend(%loss, %w) : float32[]
  return %out
}
"""
PIPELINES = [
    "gradient-accumulation{steps=2}",
    "gradient-accumulation{steps=2},clip-gradients{limit=0.1}",
    "gradient-accumulation{steps=2,split=fused},overflow-check,loss-scale",
]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_ranks_may_count_differently(pipeline: str) -> None:
    original = parsed(TEXT)
    found = bc.prove(original, bc.compile(original, f"data-parallel,{pipeline}"))
    assert found.proved, found


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("fault", ["not summed", "own count", "squared"])
def test_it_is_summed_as_often_as_it_was_counted(pipeline: str, fault: str) -> None:
    original = parsed(TEXT)
    program = bc.compile(original, f"data-parallel,{pipeline}")
    assert bc.prove(original, program).proved
    graph = next(g for g in program.graphs.values() if any(n.op.name == "AllReduce" for n in g))
    sums = sorted((n for n in graph if n.op.name == "AllReduce"), key=lambda n: n.type.size)  # type: ignore[attr-defined]
    if fault == "not summed":
        sums[-1].replace_uses(sums[-1].operand(0))
    elif fault == "own count":
        sums[0].replace_uses(sums[0].operand(0))
    else:  # the count of a rank is in it twice, or a gradient that differs
        with graph.inserting_before(sums[-1]):
            whole = sums[-1].operand(0)
            sums[-1].set_operand(0, graph.create("Mul", [whole, sums[0].operand(0)]))
    assert not prove(original, program)[0].proved
