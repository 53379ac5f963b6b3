"""Where the forward part is cut."""

from __future__ import annotations

from boost_compile.ir.core.primitives import CPU
from boost_compile.passes.recompute.candidates import bytes_of, forward_of
from boost_compile.passes.recompute.segments import inner, segments

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
