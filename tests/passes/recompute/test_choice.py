"""What of a piece runs again."""

from __future__ import annotations

from boost_compile.ir.core.primitives import CPU
from boost_compile.ir.text import parse_program
from boost_compile.passes import compile_program
from boost_compile.passes.recompute.candidates import forward_of
from boost_compile.passes.recompute.choice import everything, what_is_cheap

BODY = """graph @step(%x: float32[64,64], %w: float32[64,64]) {
  %p = MatMul(%x, %w, false, false) : float32[64,64] primal {unique_id = "1"}
  %e = Exp(%p) : float32[64,64] primal {unique_id = "2"}
  %t = Tanh(%e) : float32[64,64] primal {unique_id = "3"}
  %m = Dropout(%t, 0.5, 1, 2) : (float32[64,64], float32[64,64]) primal {unique_id = "4"}
  %d = TupleGetItem(%m, 0) : float32[64,64] primal {unique_id = "4"}
  %n = Neg(%d) : float32[64,64] primal {unique_id = "5"}
  %l = OnesLike(%n) : float32[64,64] scope("Gradients/Default")
  %g1 = Mul(%l, %n) : float32[64,64] scope("Gradients/Default")
  %g2 = Mul(%g1, %d) : float32[64,64] scope("Gradients/Default")
  %g3 = TanhGrad(%t, %g2) : float32[64,64] scope("Gradients/Default")
  %g4 = Mul(%g3, %e) : float32[64,64] scope("Gradients/Default")
  return %g4
}
"""


def names(text: str, choose: object) -> set[str]:
    forward = forward_of(parse_program(text).graphs["step"], CPU)
    return {node.name for node in choose(forward, forward.nodes)}  # type: ignore[operator]


def test_everything_but_what_draws() -> None:
    """The element of the Dropout is its memory: nothing to run again."""
    assert names(BODY, everything) == {"p", "e", "t", "n"}


def test_one_value_is_kept_in_place_of_two() -> None:
    """%e is kept, and %t computed from it; %p would be as large, and farther. %n comes from %d, which is kept since its
    mask is drawn."""
    assert names(BODY, what_is_cheap) == {"t", "n"}


def test_what_saves_nothing_does_not_run_again() -> None:
    """%e alone would be computed from %p, which is as large: of equal cuts the one nearest to the backward part."""
    assert names(BODY.replace("TanhGrad(%t, %g2)", "Neg(%g2)"), what_is_cheap) == {"n"}


def test_an_element_of_what_cannot_run_again_has_the_reason_of_that() -> None:
    report = compile_program(parse_program(BODY), "recompute", reproducer_directory=None).reports[0]
    reasons = {miss.site: miss.reason.partition(": ")[2] for miss in report.misses}
    assert reasons["step: %d"] == "it draws random numbers, which would be others"
