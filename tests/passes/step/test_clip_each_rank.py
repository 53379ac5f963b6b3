"""What each rank has for itself, before anything is summed over ranks."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.core.graph import Graph
from boost_compile.passes import compile_program
from boost_compile.passes.step.clip_each_rank import Own, clip_each_rank, own_gradients

from tests.graphs import graph, program, results
from tests.passes.graphs import WEIGHTED

STEP = """
state %w: float32[2]
state %scale: float32[]
state %rate: float32[]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %loss = ReduceSum(%y, (), false) @f
  %g = Mul(%x, %x) @b
  %s = Load(%scale, umonad)
  BODY
  %u = UpdateState(umonad, %y, %g)
  %up = ApplyGradientDescent(%w, %rate, %to, %u) : float32[2]
  %end = UpdateState(%u, %up)
  %r = Depend(%loss, %end)
  return %r
}"""


def step(body: str) -> Graph:
    return graph(STEP.replace("BODY", body))


def shown(own: Own) -> tuple[tuple[str, ...], list[str], list[set[tuple[str, int]]], bool]:
    uses = [{(user.name, i) for user, i in start.uses} for start in own.starts]
    return own.weights, [start.value.name for start in own.starts], uses, own.divided


@pytest.mark.parametrize(
    "body",
    [
        "%sum = AllReduce(%g)\n%to = Mul(%sum, float32[]<0.25>)",
        "%sum = AllReduce(%g)\n%half = Mul(%sum, float32[]<0.5>)\n%to = Mul(%half, float32[]<0.5>)",
        "%d = Mul(%w0, float32[]<0.1>)\n%sum = Add(%g, %d)\n%to = RealDiv(%sum, %s)",
        "%sum = ClipByValue(%g, -1.0, 1.0) : float32[2]\n%to = RealDiv(%sum, %s)",
    ],
)
def test_the_gradient_as_it_leaves_backward(body: str) -> None:
    """The file may divide by the ranks behind its sum, and do what it likes behind its own clip."""
    (own,) = own_gradients(step(body))
    assert shown(own) == (("w",), ["g"], [{("sum", 0)}], False)


@pytest.mark.parametrize(
    "body",
    [
        "%to = RealDiv(%g, %s)",
        "%to = Mul(%g, float32[]<0.25>)",
        "%sum = AllReduce(%g)\n%to = RealDiv(%sum, %s)",
        "%half = Mul(%g, float32[]<0.5>)\n%to = AllReduce(%half)",
    ],
)
def test_what_the_file_unscales_itself_is_refused(body: str) -> None:
    with pytest.raises(PassError, match=r"the file unscales the gradient of weight 'w' itself"):
        own_gradients(step(body))


def test_sums_of_a_cycle_and_who_takes_them() -> None:
    """They are divided by what was counted; where a mark stands on what is not, its users take it as it is."""
    of = compile_program(program(WEIGHTED), "gradient-accumulation{steps=2}", reproducer_directory=None)
    (own,) = own_gradients(of.graphs["apply"])
    (start,) = own.starts
    ((division, i),) = start.uses
    assert (own.weights, own.divided, division.op.name, i) == (("w",), True, "RealDiv", 0)
    assert start.value is division.operand(0)
    marked = step('%to = Neg(%g) marks {gradient = "w"}\n%k = UpdateState(umonad, %to)')
    (own,) = own_gradients(marked)
    assert shown(own) == (("w",), ["to"], [{("up", 2)}], False)


BESIDE = """
state %v: float32[2]
state %w: float32[2]
state %k: float32[]
state %rate: float32[]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) @f
  %v0 = Load(%v, umonad) @f
  %y = Mul(%w0, %x) @f
  %z = Mul(%v0, %y) @f
  %loss = ReduceSum(%z, (), false) @f
  %g = Mul(%x, %x) @b
  %h = Neg(%x) @b
  %k0 = Load(%k, umonad)
  %normalisation = Mul(%k0, float32[]<1.0>) marks {stage = "normalisation"}
  %to = RealDiv(%g, %normalisation) marks {stage = "unscale"}
  %u = UpdateState(umonad, %y, %z, %k0)
  %a = ApplyGradientDescent(%w, %rate, %to, %u) : float32[2]
  %u2 = UpdateState(%u, %a)
  %b = ApplyGradientDescent(%v, %rate, %h, %u2) : float32[2]
  %end = UpdateState(%u2, %b)
  %r = Depend(%loss, %end)
  return %r
}"""


@pytest.mark.parametrize("measured", [True, False])
@pytest.mark.parametrize("by", ["tensor-norm", "value", "global-norm"])
def test_each_gradient_is_measured_as_the_update_takes_it(by: str, measured: bool) -> None:
    """One of them is divided by ten, the other by nothing; the limit is one half."""
    g = graph(BESIDE)
    length = clip_each_rank(g, by, 0.5, measured)
    g.sort()
    assert (length is not None) == (measured or by == "global-norm")
    x = np.float32([1, 2])
    wanted = {"w": x * x / 10, "v": -x}
    norms = {name: np.linalg.norm(value) for name, value in wanted.items()}
    whole = np.linalg.norm(list(norms.values()))
    for _, after in results(g, [x], {n: np.float32(v) for n, v in START.items()}):
        for name, value in wanted.items():
            limited = np.clip(value, -0.5, 0.5)
            if by != "value":
                limited = value * 0.5 / max(0.5, norms[name] if by == "tensor-norm" else whole)
            np.testing.assert_allclose(after[name], START[name] - limited, rtol=1e-5)


START = {"v": [1, 2], "w": [3, 4], "k": 10, "rate": 1}
