"""When the loss scales of groups change, by running the rule."""

from __future__ import annotations

import math

import numpy as np
import pytest
from boost_compile.ir.core.program import Program
from boost_compile.passes import compile_program
from boost_compile.passes.step.group_scale_rule import steps_of, value_of

from tests.execution import ORDERS, train
from tests.graphs import program

GROUPS = """
state %v: float32[2] role=weight
state %w: float32[2] role=weight
state %rate: float32[] role=hyperparameter
graph @step(%x: float32[2], %e: float32[2]) -> (loss) {
  %v0 = Load(%v, umonad) @f
  %w0 = Load(%w, umonad) @f
  %y = Mul(%v0, %x) @f
  %z = Mul(%y, %w0) @f
  %zz = Mul(%z, %e) @f
  %loss = ReduceSum(%zz, (), false) @f
  %seed = OnesLike(%loss) @b
  %dz = Mul(%seed, %e) @b
  %dw = Mul(%dz, %y) @b
  %dy = Mul(%dz, %w0) @b
  %dv = Mul(%dy, %x) @b
  %u = UpdateState(umonad, %y, %z, %dy)
  %a = ApplyGradientDescent(%v, %rate, %dv, %u) : float32[2]
  %b = ApplyGradientDescent(%w, %rate, %dw, %u) : float32[2]
  %end = UpdateState(%u, %a, %b)
  %r = Depend(%loss, %end)
  return %r
}"""
"""%v is nearer to the input: its gradient is %x times that of the group of %w, which is nearer to the loss."""
FINE, NEAR = ((1.0, 1.0), (1.0, np.inf))
"""What %x and %e are: all gradients finite; an infinity that enters at the loss, so both gradients have it."""


def compiled(window: int = 4, least: float = 1.0, most: float = 64.0) -> Program:
    options = f"match=[v,w],init=[8,16],window={window},min={least},max={most}"
    return compile_program(program(GROUPS), f"group-loss-scale{{{options}}}", reproducer_directory=None)


def scales(of: Program, *cycles: tuple[float, float]) -> list[tuple[float, float]]:
    """(scale, steps) of the group of %v and of that of %w after these cycles."""
    state = {"v": np.float32([1, 2]), "w": np.float32([1, 1]), "rate": np.float32(0.0)}
    given = [[np.full(2, x, np.float32), np.full(2, e, np.float32)] for x, e in cycles]
    runs = [train(of, state, given, order)[1] for order in ORDERS]
    found = [[(float(run[value_of(k)]), float(run[steps_of(k)])) for k in (0, 1)] for run in runs]
    assert all(f == found[0] for f in found)
    return found[0]


def test_both_begin_as_asked_and_grow_together() -> None:
    """Four steps make an octave."""
    of = compiled()
    assert of.state[value_of(0)].initial == 8
    assert of.state[value_of(1)].initial == 16
    assert scales(of, FINE) == [(8, 1), (16, 1)]
    assert scales(of, *[FINE] * 3) == [(8, 3), (16, 3)]
    assert scales(of, *[FINE] * 4) == [(16, 0), (32, 0)]
    assert scales(of, *[FINE] * 5) == [(16, 1), (32, 1)]


def test_the_group_nearest_to_the_loss_is_blamed() -> None:
    """The infinity is in both gradients; half an octave down from 16 is 8 and two of four steps. The other group goes
    on: nothing tells that it would have overflowed."""
    assert scales(compiled(), NEAR) == [(8, 1), (8, 2)]
    assert scales(compiled(), NEAR, NEAR) == [(8, 2), (8, 0)]
    assert scales(compiled(), FINE, FINE, FINE, NEAR) == [(16, 0), (16, 1)]


def test_an_infinity_behind_a_group_is_not_its_fault() -> None:
    """%x overflows the derivative of %v alone."""
    of = compiled()
    state = {"v": np.float32([0, 0]), "w": np.float32([1, 1]), "rate": np.float32(0.0)}
    big = np.float32([3e38, 3e38])
    after = train(of, state, [[big, np.float32([0.5, 0.5])]])[1]
    assert (after[value_of(0)], after[steps_of(0)]) == (4, 2)
    assert (after[value_of(1)], after[steps_of(1)]) == (16, 1)


def test_what_a_group_at_its_minimum_overflows_is_laid_on_the_next() -> None:
    """The blame goes from the input to the loss: what reached %v was too large before it came there."""
    of = compiled(least=8.0)
    state = {"v": np.float32([0, 0]), "w": np.float32([1, 1]), "rate": np.float32(0.0)}
    big = np.float32([3e38, 3e38])
    after = train(of, state, [[big, np.float32([0.5, 0.5])]])[1]
    assert (after[value_of(0)], after[steps_of(0)]) == (8, 0)  # below the minimum nothing is counted
    assert (after[value_of(1)], after[steps_of(1)]) == (8, 2)


def test_limits() -> None:
    assert scales(compiled(most=16.0), *[FINE] * 9) == [(16, 0), (16, 0)]
    assert scales(compiled(least=4.0), *[NEAR] * 9)[1] == (4, 0)


def test_the_whole_scale_follows_upstreams_formula() -> None:
    """2 ** (steps / window) above the applied power of two: +1/window octaves a cycle, or half an octave down."""
    pattern = [FINE, NEAR, FINE, FINE, FINE, NEAR, FINE, FINE, FINE, FINE]
    upstream = math.log2(16)
    for cycle in pattern:
        upstream += -0.5 if cycle is NEAR else 0.25
    (_, (value, steps)) = scales(compiled(), *pattern)
    assert math.log2(value) + steps / 4 == pytest.approx(upstream)
