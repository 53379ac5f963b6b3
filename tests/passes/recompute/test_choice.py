"""What of a piece runs again."""

from __future__ import annotations

from boost_compile.ir.core.primitives import CPU
from boost_compile.ir.text import parse_program
from boost_compile.passes import compile_program
from boost_compile.passes.recompute.candidates import forward_of
from boost_compile.passes.recompute.choice import everything, parts, what_is_cheap, what_is_worth

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


DEAR = """graph @step(%x: float32[512,64], %w: float32[64,512]) {
  %p = MatMul(%x, %w, false, false) : float32[512,512] primal {unique_id = "1"}
  %g = GeLU(%p) : float32[512,512] primal {unique_id = "2"}
  %t = Tanh(%g) : float32[512,512] primal {unique_id = "3"}
  %n = Neg(%x) : float32[512,64] primal {unique_id = "4"}
  %l = OnesLike(%t) : float32[512,512] scope("Gradients/Default")
  %g1 = TanhGrad(%t, %l) : float32[512,512] scope("Gradients/Default")
  %g2 = GeLUGrad(%g1, %p, %g) : float32[512,512] scope("Gradients/Default")
  %g3 = Mul(%n, %x) : float32[512,64] scope("Gradients/Default")
  %m = MakeTuple(%g2, %g3) : (float32[512,512], float32[512,64])
  return %m
}
"""


def test_what_takes_long_is_kept_until_a_byte_is_worth_it() -> None:
    """On CPU a GeLU takes far longer than a product with 64 columns inside, and a Tanh of the same size least. A Neg
    is as cheap as a Tanh. Nothing is worth nothing."""
    found = [names(DEAR, lambda forward, piece, p=price: what_is_worth(forward, piece, p)) for price in PRICED]
    assert found == [set(), {"t", "n"}, {"p", "t", "n"}, {"p", "g", "t", "n"}]


PRICED = (0, 120, 500, 1 << 40)


def test_a_price_counts_what_must_be_kept_besides() -> None:
    """Without %p in the backward part %g would be computed from a value that is as large."""
    text = DEAR.replace("GeLUGrad(%g1, %p, %g)", "Mul(%g1, %g)")
    assert names(text, lambda forward, piece: what_is_worth(forward, piece, 1 << 40)) == {"p", "g", "t", "n"}
    without = text.replace("MatMul(%x, %w, false, false)", "Multinomial(%x, %w)")
    assert names(without, lambda forward, piece: what_is_worth(forward, piece, 1 << 40)) == {"t", "n"}


def test_a_view_from_another_piece_costs_what_it_shows() -> None:
    """%v is in front of the piece. What it shows is taken by the backward part, so %n costs nothing; of %k it is not,
    so %m would cost as much as it saves."""
    forward = forward_of(
        parse_program("""graph @step(%x: float32[4]) {
  %a = Exp(%x) : float32[4] primal {unique_id = "1"}
  %v = Reshape(%a, (2, 2)) : float32[2,2] primal {unique_id = "2"}
  %k = Exp(%x) : float32[4] primal {unique_id = "3"}
  %n = Neg(%v) : float32[2,2] primal {unique_id = "4"}
  %m = Neg(%k) : float32[4] primal {unique_id = "5"}
  %g1 = Mul(%n, %n) : float32[2,2] scope("Gradients/Default")
  %g2 = Mul(%a, %m) : float32[4] scope("Gradients/Default")
  %t = MakeTuple(%g1, %g2) : (float32[2,2], float32[4])
  return %t
}
""").graphs["step"],
        CPU,
    )
    piece = [node for node in forward.nodes if node.name in ("n", "m")]
    assert {node.name for node in what_is_cheap(forward, piece)} == {"n"}


def test_what_does_not_compute_from_each_other_waits_by_itself() -> None:
    forward = forward_of(parse_program(DEAR).graphs["step"], CPU)
    found = parts(forward, everything(forward, forward.nodes))
    assert [{node.name for node in part} for part in found] == [{"p", "g", "t"}, {"n"}]
