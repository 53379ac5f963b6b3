"""What the derivative of a loss is multiplied by, whatever the loss and wherever the exporter folded the number."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.analysis.training.loss_multipliers import Multiplier, loss_multipliers

from tests.graphs import graph

STEP = """
state %w: float32[4]
state %scale: float32[]
graph @step(%x: float32[4]) {
  %w0 = Load(%w, umonad) @f1
  %e = Sub(%w0, %x) @f2
FORWARD
BACKWARD
  %new = AssignSub(%w, %g, umonad)
  %t = UpdateState(umonad, %new)
  %r = Depend(%loss, %t)
  return %r
}"""
SQUARES = "%q = Square(%e) : float32[4] @f3\n"
SUM = "%loss = ReduceSum(%q, (), false) : float32[] @f4"
MEAN = "%loss = ReduceMean(%q, (), false) : float32[] @f4"
GIVEN = "%loss = ReduceMean(%e, (), false) : float32[] @f4"


def found(forward: str, backward: str) -> tuple[Multiplier, ...] | None:
    return loss_multipliers(anatomy(graph(STEP.replace("FORWARD", forward).replace("BACKWARD", backward))))


@pytest.mark.parametrize("sens", [1.0, 8.0, 16.0, 24.0, 1000.0, 0.5])
def test_the_number_is_told_from_what_the_chain_rule_brings(sens: float) -> None:
    """2 of a square, 1/4 of a mean of four numbers."""
    four = f"float32[4]<{sens}, {sens}, {sens}, {sens}>"
    folded = f"float32[4]<{', '.join([str(2 * sens)] * 4)}>"
    quarter = f"float32[4]<{', '.join([str(sens / 4)] * 4)}>"
    for forward, backward in (
        (SQUARES + SUM, f"%c = Mul(%e, float32[]<2.0>) @b3\n%g = Mul(%c, {four}) @b3"),
        (SQUARES + SUM, f"%c = Pow(%e, float32[]<1.0>) : float32[4] @b3\n%g = Mul(%c, {folded}) @b3"),
        (SQUARES + MEAN, f"%s = RealDiv({four}, float32[]<4.0>) @b4\n%c = Mul(%e, float32[]<2.0>) @b3\n"
                         "%g = Mul(%c, %s) @b3"),
        (GIVEN, f"%g = Mul({quarter}, %x) @b2"),
    ):  # fmt: skip
        assert found(forward, backward) == (sens,)


def test_what_multiplies_the_loss_itself_counts_and_a_divisor_does_not() -> None:
    forward = (
        SQUARES + "%m = ReduceSum(%q, (), false) : float32[] @f4\n%big = Mul(%m, float32[]<24.0>) : float32[] @f5\n"
    )
    forward += "%loss = RealDiv(%big, float32[]<3.0>) : float32[] @f6"
    backward = "%c = Mul(%e, float32[]<2.0>) @b3\n%g = Mul(%c, float32[4]<8.0, 8.0, 8.0, 8.0>) @b3"
    assert found(forward, backward) == (1.0, 24.0)


def test_a_state_that_multiplies_is_told_by_name() -> None:
    backward = "%s = Load(%scale, umonad) @b4\n%c = Mul(%e, float32[]<2.0>) @b3\n%g = Mul(%c, %s) @b3"
    assert found(SQUARES + SUM, backward) == ("scale", 1.0)


def test_what_only_some_seeds_are_multiplied_by_is_no_multiplier() -> None:
    forward = SQUARES + "%a = ReduceSum(%q, (), false) : float32[] @f4\n%h = Square(%x) : float32[4] @f7\n"
    forward += "%p = Mul(%e, %h) @f8\n%b = ReduceSum(%p, (), false) : float32[] @f5\n"
    forward += "%b8 = Mul(%b, float32[]<8.0>) : float32[] @f9\n%loss = Add(%a, %b8) : float32[] @f6"
    backward = "%c = Mul(%e, float32[]<2.0>) @b3\n%d = Mul(%c, float32[4]<1.0, 1.0, 1.0, 1.0>) @b3\n"
    backward += "%f = Mul(%h, float32[4]<8.0, 8.0, 8.0, 8.0>) @b8\n%g = Add(%d, %f) @b2"
    assert found(forward, backward) == (1.0,)


def test_what_follows_no_chain_rule_is_not_told() -> None:
    assert found("%loss = Exp(%e) : float32[4] @f3", "%g = Mul(%e, %x) @b9") is None
