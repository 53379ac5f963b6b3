"""Where the forward part is cut."""

from __future__ import annotations

from boost_compile.ir.core.primitives import CPU
from boost_compile.passes.recompute.candidates import bytes_of, forward_of
from boost_compile.passes.recompute.segments import _crossing, inner, segments

from tests.graphs import graph
from tests.passes.recompute.chain import WIDTH, chain


def test_pieces_have_about_the_bytes_that_were_asked_for() -> None:
    forward = forward_of(chain(32).graphs["step"], CPU)
    pieces = segments(forward, 8 * 4 * WIDTH)
    assert [node for piece in pieces for node in piece] == forward.nodes
    held = [sum(bytes_of(n) for n in piece if n in forward.wanted) // (4 * WIDTH) for piece in pieces]
    assert sum(held) == 32
    assert all(5 <= count <= 12 for count in held[:-1])


def test_what_another_piece_takes_is_not_inner() -> None:
    forward = forward_of(chain(32).graphs["step"], CPU)
    pieces = segments(forward, 8 * 4 * WIDTH)
    for piece, own in zip(pieces[:-1], inner(forward, pieces), strict=False):
        left = [n.name for n in piece if n not in own]
        assert left == [piece[-1].name], "a chain hands on its last value alone"


def test_the_bytes_that_cross_each_place() -> None:
    """A view is the memory of what it shows, an element is there with its tuple, and what is free costs nothing."""
    forward = forward_of(
        graph("""graph @step(%x: float32[4]) {
  %a = Neg(%x) @f
  %b = Exp(%a) @f
  %v = Reshape(%b, (2, 2)) : float32[2,2] @f
  %c = Mul(%v, %v) @f
  %d = Add(%b, %a) @f
  %t = Split(%d, 0, 2) : (float32[2], float32[2]) @f
  %e = TupleGetItem(%t, 1) @f
  %n = Neg(%e) @f
  %g = Mul(%n, %n) @b
  return %g
}"""),
        CPU,
    )
    assert [n.name for n in forward.nodes] == list("abvcdten")
    a, b, d, e = 16, 16, 16, 8
    assert _crossing(forward, lambda node: False) == [0, a, a + b, a + b, a + b, d, e, e, 0]
    assert _crossing(forward, lambda node: node.name == "a") == [0, 0, b, b, b, d, e, e, 0]


BOTTLENECK = """graph @step(%x: float32[8]) {
  %a = Neg(%x) @f
  %b = Exp(%a) @f
  %s = StridedSlice(%b, (0,), (2,), (1,)) : float32[2] @f
  %c = Tile(%s, (4,)) : float32[8] @f
  %d = Neg(%c) @f
  %g1 = Mul(%d, %c) @b
  %g2 = Mul(%b, %a) @b
  %g3 = Mul(%s, %s) @b
  %all = MakeTuple(%g1, %g2, %g3)
  return %all
}"""


def test_a_piece_ends_at_the_narrowest_place_behind_half_of_its_bytes() -> None:
    """%s, of 8 bytes, is narrow; the others have 32. It comes too late for pieces of 64, and before half of the second
    piece then; with 40 it is a piece between two."""
    forward = forward_of(graph(BOTTLENECK), CPU)
    found = {
        limit: ["".join(n.name for n in piece) for piece in segments(forward, limit)] for limit in (72, 65, 64, 40)
    }
    assert found == {72: ["abs", "cd"], 65: ["abs", "cd"], 64: ["ab", "scd"], 40: ["ab", "s", "cd"]}
