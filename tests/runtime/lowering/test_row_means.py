"""Gradients that are centralized as matrices: the numbers of the mean over several axes, and no more error."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower

import boost_compile as bc


@pytest.mark.parametrize(("axes", "kept"), [((1, 2, 3), "16,1,1,1"), ((2, 3), "16,32,1,1")])
def test_a_centralized_update(axes: tuple[int, ...], kept: str) -> None:
    program = parse_program(f"""
state %w: float32[16,32,3,3] role=weight trainable=true
state %rate: float32[]<1.0> role=hyperparameter
graph @step(%g: float32[16,32,3,3]) -> (loss) {{
  %loss = ReduceSum(%g, (), false, false) : float32[]
  %mean = ReduceMean(%g, {axes}, true) : float32[{kept}]
  %c = Sub(%g, %mean) : float32[16,32,3,3] marks {{stage = "centralize"}}
  %n = ApplyGradientDescent(%w, %rate, %c, umonad) : float32[16,32,3,3]
  %u = UpdateState(umonad, %n)
  %r = Depend(%loss, %u)
  return %r
}}
""")
    lowered = lower(program.graphs["step"], Context(program, "cpu"))
    assert dict(lowered.steps)["row-means"] == "1 gradient centralized as a matrix"
    session = bc.Session(program)
    g = np.random.default_rng(0).standard_normal((16, 32, 3, 3)).astype(np.float32) + 100
    session.step(g)
    exact = -(g - g.astype(np.float64).mean(axes, keepdims=True))
    found = session.state()["w"]
    np.testing.assert_allclose(found, exact, rtol=0, atol=2e-5)  # two roundings of a number near 100
    assert abs(found.mean(axes)).max() < 2e-5
