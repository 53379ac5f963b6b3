"""Widths of paddings, by axis."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.paddings import Width, widths_by_axis

from tests.graphs import graph, node


@pytest.mark.parametrize(
    ("given", "pairs", "widths"),
    [
        ((-4, 0), True, [(0, 0), (0, 0), (-4, 0)]),
        ((1, 2, 3, 4), True, [(0, 0), (3, 4), (1, 2)]),
        ((1, 2, 3, 4), False, [(0, 0), (2, 4), (1, 3)]),
    ],
)
def test_the_last_axis_comes_first(given: tuple[int, ...], pairs: bool, widths: list[Width]) -> None:
    g = graph(f"%z = PadV3(%x, {given}, none) {{paddings_contiguous = {str(pairs).lower()}}} : float32[9]\nreturn %z")
    assert widths_by_axis(node(g, "z"), given, 3) == widths
