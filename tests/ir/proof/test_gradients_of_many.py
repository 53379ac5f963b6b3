"""Weights that an optimizer of one's own updates step by step: whose gradient is which is seen in what they take."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.proof.prover import prove
from boost_compile.passes import NoMatchWarning

import boost_compile as bc
from tests.graphs import program as parsed

TEXT = """state %a: float32[2]<1.0, 2.0> role=weight
state %b: float32[2]<3.0, 4.0> role=weight
state %w: float32[2]<5.0, 6.0> role=weight
state %rate: float32[]<0.1>

graph @step(%x: float32[2,1], %y: float32[2]) -> (loss) {
  %l = Load(%a, umonad) : float32[2] @f1
  %m = Load(%b, umonad) : float32[2] @f2
  %n = Load(%w, umonad) : float32[2] @f3
  %both = Add(%l, %m) : float32[2] @f4
  %column = Reshape(%both, (2, 1)) : float32[2,1] @f5
  %p = Mul(%column, %x) : float32[2,1] @f6
  %q = Mul(%n, %y) : float32[2] @f7
  %one = OnesLike(%p) : float32[2,1] @b6
  %gx = Mul(%one, %x) : float32[2,1] @b6
  %g = Reshape(%gx, (2,)) : float32[2] @b5
  %other = OnesLike(%q) : float32[2] @b7
  %h = Mul(%other, %y) : float32[2] @b7
  %sum = ReduceSum(%p, (), false, false) : float32[] @f8
  %more = ReduceSum(%q, (), false, false) : float32[] @f9
  %loss = Add(%sum, %more) : float32[] @f10
  %squares = Mul(%g, %g) : float32[2]
  %norm = ReduceSum(%squares, (), false, false) : float32[]
  %length = Sqrt(%norm) : float32[]
  %share = RealDiv(%rate, %length) : float32[]
  %da = Mul(%share, %g) : float32[2]
  %db = Mul(%rate, %g) : float32[2]
  %dw = Mul(%rate, %h) : float32[2]
  %t = UpdateState(umonad, %l)
  %u = UpdateState(%t, %m)
  %v = UpdateState(%u, %n)
  %na = AssignSub(%a, %da, %v) : float32[2]@a
  %va = UpdateState(%v, %na)
  %nb = AssignSub(%b, %db, %va) : float32[2]@b
  %vb = UpdateState(%va, %nb)
  %nw = AssignSub(%w, %dw, %vb) : float32[2]@w
  %vw = UpdateState(%vb, %nw)
  %out = Depend(%loss, %vw) : float32[]
  return %out
}
"""
CYCLES = ["", "gradient-accumulation{steps=2},", "data-parallel,", "data-parallel,gradient-accumulation{steps=2},"]


@pytest.mark.parametrize("cycle", CYCLES)
@pytest.mark.parametrize("by", ["global-norm", "tensor-norm", "value"])
def test_two_weights_may_have_one_gradient(cycle: str, by: str) -> None:
    """As the two biases of a recurrent layer; and it may be rearranged where it leaves the backward part."""
    original = parsed(TEXT)
    found = bc.prove(original, bc.compile(original, f"{cycle}clip-gradients{{by={by},limit=0.1}}"))
    assert found.proved, found
    assert found.proof.stated[0].weights == ("a", "b", "w")


@pytest.mark.parametrize("pipeline", ["freeze{match=b}", "freeze{match=w},overflow-check", "gradient-freeze"])
def test_a_mean_over_ranks_that_is_rearranged_is_of_a_gradient(pipeline: str) -> None:
    """What another weight takes is not left out with a frozen one."""
    original = parsed(TEXT)
    found = bc.prove(original, bc.compile(original, f"data-parallel,{pipeline}"))
    assert found.proved, found


@pytest.mark.parametrize("cycle", CYCLES)
@pytest.mark.parametrize("fault", ["limit", "one weight not clipped", "norm without one"])
def test_what_each_takes_is_compared(cycle: str, fault: str) -> None:
    original = parsed(TEXT)
    program = bc.compile(original, f"{cycle}clip-gradients{{limit=0.1}}")
    assert bc.prove(original, program).proved
    graph = program.graphs["apply" if "apply" in program.graphs else "step"]
    if fault == "limit":
        (largest,) = (n for n in graph if n.op.name == "Maximum")
        largest.set_operand(1, graph.constant(scalar_tensor("float32", 0.2)))
    elif fault == "one weight not clipped":
        steps = {n.name: n for n in graph if n.name in ("db", "dw")}
        steps["db"].set_operand(1, steps["dw"].operand(1))
    else:
        root = next(n for n in graph if n.op.name == "Sqrt" and n.name != "length")
        root.set_operand(0, next(n for n in graph if n.name == "norm"))
    assert not prove(original, program)[0].proved


def test_two_weights_do_not_take_one_gradient_apart() -> None:
    """A formula that changes it for one of the two weights alone has no law."""
    original = parsed(TEXT)
    with pytest.warns(NoMatchWarning):
        program = bc.compile(original, "tag-gradient-centralization?,lower-gradient-centralization?")
    assert prove(original, program)[0].proved
    program.state["b"].info["centralize"] = (0,)
    found = prove(original, program)[0]
    assert {v.detail for v in found.failures if v.name != "rate"} == {
        "'b' has its gradient with another weight, and each is to take another: law missing"
    }
