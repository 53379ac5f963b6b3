"""How far MindSpore's memory pool reaches, worked out by hand."""

from __future__ import annotations

from boost_compile.ir.analysis.cost.pool import reach
from boost_compile.ir.text import parse_program


def test_pieces_too_small_for_what_comes_next_stay_unused() -> None:
    """a and b side by side; a's place is free when c comes, which is larger than a: c stands behind b."""
    graph = parse_program(
        "graph @g(%x: float32[256], %y: float32[512]) {\n  %a = Exp(%x)\n  %b = Neg(%a)\n  %c = Exp(%y)\n"
        "  %d = Exp(%b)\n  %t = MakeTuple(%c, %d)\n  return %t\n}\n"
    ).graphs["g"]
    assert reach(graph) == 1024 + 1024 + 2048
