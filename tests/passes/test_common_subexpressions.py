"""Two equal nodes stay two where each does something of its own."""

from __future__ import annotations

import pytest
from boost_compile.ir.text import parse_program

import boost_compile as bc


@pytest.mark.parametrize(
    ("node", "stay"),
    [
        ("Sqrt(%x)", 1),
        ('AllReduce(%x) {group = "g", op = "sum"}', 2),
        ('InnerCommAllReduce(%x, "sum", "g")', 2),
        ("NeighborExchangeV2(%x)", 2),
        ("FractionalAvgPool(%x) {seed = 0, seed2 = 0}", 2),
        ("GenerateEodMaskV2(%x, 1, 0)", 2),
        ("StandardNormal((2, 3)) {seed = 1, seed2 = 1}", 2),
    ],
)
def test_draws_and_collectives_are_never_merged(node: str, stay: int) -> None:
    program = parse_program(f"""
        graph @g(%x: float32[2,3]) {{
          %a = {node} : float32[2,3]
          %b = {node} : float32[2,3]
          %r = Add(%a, %b) : float32[2,3]
          return %r
        }}
    """)
    compiled = bc.compile(program, "common-subexpression-elimination")
    assert len(compiled.graphs["g"]) == stay + 1
