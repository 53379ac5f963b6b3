"""Convolutions for which a session gives up AVX-512, told from what oneDNN takes for a product."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.convolutions import convolves
from boost_compile.ir.text import parse_graph

POINT = "%c = Conv2D(%x, %point) {} : float32[1,2,8,8]"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("%c = Conv2D(%x, %w) : float32[1,2,6,6]", True),
        ("%c = Conv2D(%w, %x) : float32[2,1,1,1]", True),
        ("%c = Conv2DBackpropInput(%x, %w, (1, 2, 10, 10)) : float32[1,2,10,10]", True),
        ("%c = Conv2DTranspose(%x, %w, (1, 2, 10, 10)) : float32[1,2,10,10]", True),
        ("%c = Conv2DBackpropFilter(%x, %x, (2, 2, 3, 3)) : float32[2,2,3,3]", False),
        ("%c = MatMul(%m, %m, false, false) : float32[4,4]", False),
        (POINT, False),
        (POINT.replace("{}", "{stride = (1, 1, 1, 1), pad_list = (0, 0, 0, 0), group = 1}"), False),
        (POINT.replace("{}", "{stride = (1, 1, 2, 2)}"), True),
        (POINT.replace("{}", "{pad_list = (0, 0, 1, 0)}"), True),
        (POINT.replace("{}", "{group = 2}"), True),
    ],
)
def test_what_convolves(line: str, found: bool) -> None:
    inputs = "%x: float32[1,2,8,8], %w: float32[2,2,3,3], %point: float32[2,2,1,1], %m: float32[4,4]"
    assert convolves(parse_graph(f"graph @g({inputs}) {{\n{line}\nreturn %c\n}}\n")) is found


def test_in_a_function_too() -> None:
    graph = parse_graph("""graph @g(%x: float32[1,2,8,8], %w: float32[2,2,3,3]) {
  %c = call(@f, %x, %w) : float32[1,2,6,6]
  return %c

  func @f(%y: float32[1,2,8,8], %v: float32[2,2,3,3]) {
    %d = Conv2D(%y, %v) : float32[1,2,6,6]
    return %d
  }
}""")
    assert convolves(graph)
