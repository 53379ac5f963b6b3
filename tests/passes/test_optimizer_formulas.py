"""The optimizers that stand here against their papers' formulas, on gradients that the test knows."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.passes import compile_program

from tests.execution import train
from tests.graphs import program
from tests.passes.optimizer_formulas import RULES, Array

STEP = """
state %tall: float32[4,3] role=weight
state %wide: float32[2,5] role=weight
state %bias: float32[3] role=weight
state %norm.beta: float32[3] role=weight
state %rate: float32[]<0.1> role=hyperparameter
graph @step(%a: float32[4,3], %b: float32[2,5], %c: float32[3]) -> (loss) {
  %w1 = Load(%tall, umonad) @f1
  %w2 = Load(%wide, umonad) @f2
  %w3 = Load(%bias, umonad) @f3
  %w4 = Load(%norm.beta, umonad) @f4
  %m1 = Mul(%a, %w1) @f5
  %m2 = Mul(%b, %w2) @f6
  %m3 = Mul(%c, %w3) @f7
  %m4 = Mul(%c, %w4) @f8
  %s1 = ReduceSum(%m1, (), false, false) : float32[] @f9
  %s2 = ReduceSum(%m2, (), false, false) : float32[] @f10
  %s3 = ReduceSum(%m3, (), false, false) : float32[] @f11
  %s4 = ReduceSum(%m4, (), false, false) : float32[] @f12
  %t1 = Add(%s1, %s2) @f13
  %t2 = Add(%s3, %s4) @f14
  %loss = Add(%t1, %t2) @f15
  %o1 = OnesLike(%m1) @b9
  %o2 = OnesLike(%m2) @b10
  %o3 = OnesLike(%m3) @b11
  %o4 = OnesLike(%m4) @b12
  %g1 = Mul(%o1, %a) @b5
  %g2 = Mul(%o2, %b) @b6
  %g3 = Mul(%o3, %c) @b7
  %g4 = Mul(%o4, %c) @b8
  %t = UpdateState(umonad, %w1, %w2, %w3, %w4)
  %u1 = ApplyGradientDescent(%tall, %rate, %g1, %t) : float32[4,3]
  %u2 = ApplyGradientDescent(%wide, %rate, %g2, %t) : float32[2,5]
  %u3 = ApplyGradientDescent(%bias, %rate, %g3, %t) : float32[3]
  %u4 = ApplyGradientDescent(%norm.beta, %rate, %g4, %t) : float32[3]
  %end = UpdateState(%t, %u1, %u2, %u3, %u4)
  %r = Depend(%loss, %end)
  return %r
}"""
OF = {"tall": 0, "wide": 1, "bias": 2}
"""The input that is the gradient of each weight."""


@pytest.mark.parametrize("kind", RULES)
def test_three_updates_are_those_of_the_paper(kind: str) -> None:
    to, rule = RULES[kind]
    made = compile_program(program(STEP), f'replace-optimizer{{to="{to}"}}', reproducer_directory=None)
    rng = np.random.default_rng(5)
    inputs = next(iter(made.graphs.values())).inputs
    batches = [[rng.standard_normal(v.type.shape).astype(np.float32) for v in inputs] for _ in range(3)]
    weights = {n: rng.standard_normal(v.shape).astype(np.float32) for n, v in made.state.items() if v.role == "weight"}
    starts = {f"{slot}{name}": value for slot in ("free_z.", "average.") for name, value in weights.items()}
    state = {**weights, **{name: value for name, value in starts.items() if name in made.state}}
    kept: dict[str, Array] = {}
    wanted = {name: weights[name].astype(np.float64) for name in OF}
    for t in range(1, 4):
        found = train(made, state, batches[:t])[1]
        for name, at in OF.items():
            wanted[name] = rule(kept, name, wanted[name], batches[t - 1][at].astype(np.float64), t)
            np.testing.assert_allclose(found[name], wanted[name], rtol=0, atol=2e-5, err_msg=f"{name}, update {t}")
            if f"average.{name}" in kept:
                np.testing.assert_allclose(found[f"average.{name}"], kept[f"average.{name}"], rtol=0, atol=2e-5)


def moved(to: str, text: str = STEP) -> dict[str, float]:
    """How far an element of each weight moves in one update, from 1, with a gradient of 1."""
    made = compile_program(program(text), f'replace-optimizer{{to="{to}"}}', reproducer_directory=None)
    weights = {name: np.ones(v.shape, np.float32) for name, v in made.state.items() if v.role == "weight"}
    inputs = next(iter(made.graphs.values())).inputs
    after = train(made, weights, [[np.ones(v.type.shape, np.float32) for v in inputs]])[1]
    return {name: 1.0 - float(after[name].ravel()[0]) for name in weights}


DECAYED = "%d3 = Mul(%w3, float32[]<0.1>)\n  %s5 = Add(%g3, %d3)\n  "


def test_what_the_file_decays_goes_on_decaying() -> None:
    """Whatever a weight is called; all decay where the file decays none."""
    update = "%u3 = ApplyGradientDescent(%bias, %rate, "
    text = STEP.replace(f"{update}%g3", f"{DECAYED}{update}%s5")
    to = "Lion{lr=0.01,weight_decay=0.5}"
    assert moved(to, text) == pytest.approx({"tall": 0.01, "wide": 0.01, "bias": 0.015, "norm.beta": 0.01}, rel=1e-4)
    assert moved(to) == pytest.approx(dict.fromkeys([*OF, "norm.beta"], 0.015), rel=1e-4)


def test_what_is_left_out_has_a_default() -> None:
    """The rate is the file's."""
    assert moved("lion") == pytest.approx(dict.fromkeys([*OF, "norm.beta"], 0.1), rel=1e-4)
    assert moved("schedule_free_adamw") == pytest.approx(moved("ScheduleFreeAdamW{beta1=0.9,lr=0.1}"))
