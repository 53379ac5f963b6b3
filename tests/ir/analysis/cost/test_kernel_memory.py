"""What kernels keep, where the rules meet: `benchmarks/kernel_memory.py` measures the kernels themselves."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.cost.kernel_memory import kernel_memory
from boost_compile.ir.text import parse_program

INPUTS = (
    "%x: float32[6,10], %row: float32[10], %column: float32[6,1], %one: float32[], %f: float32[2,3,5,5],"
    " %d: float32[4,2,3,3], %tall: float32[2048,256], %wide: float32[2048,1024], %square: float32[10,10],"
    " %half: float16[6,10], %steps: float32[5,2,6], %h: float32[1,2,8], %weights: float32[480,1,1]"
)
RECURRENT = (
    "LSTM(%steps, %h, %h, %weights) : (float32[5,2,8], float32[1,2,8], float32[1,2,8], float32[1,1], float32[1,1])"
)


@pytest.mark.parametrize(
    ("node", "kept"),
    [
        ("Add(%x, %row)", 16 * 60),
        ("Mul(%column, %x)", 16 * 60),
        ("Sub(%row, %column) : float32[6,10]", 16 * 60),
        ("Add(%x, %x)", 0),
        ("Mul(%x, %one)", 0),
        ("Div(%x, %x)", 16 * 60),
        ("RealDiv(%x, %x)", 0),
        ("Maximum(%x, %row)", 0),
        ("SoftmaxBackward(%x, %x, -1) : float32[6,10]", 16 * 60),
        ("SoftmaxBackward(%half, %half, -1) : float16[6,10]", 48 * 60),
        ("Add(%half, %half) : float16[6,10]", 16 * 60),
        ("Muls(%half, 0.5) : float16[6,10]", 16 * 60),
        ("RealDiv(%half, %half) : float16[6,10]", 0),
        ("Transpose(%x, (1, 0)) : float32[10,6]", 8 * 64),
        ("Conv2DBackpropFilter(%d, %f, (4, 3, 3, 3)) : float32[4,3,3,3]", 2 * 4 * 108),
        ("MatMul(%x, %x, true, false) : float32[10,10]", 2 * 4 * 10 * 6),
        ("MatMul(%x, %x, false, true) : float32[6,6]", 2 * 4 * 6 * 10),
        ("MatMul(%tall, %tall, true, false) : float32[256,256]", 2 * 4 * 128 * 512),
        ("MatMul(%tall, %wide, true, false) : float32[256,1024]", 2 * 4 * (128 + 64) * 512),
        ("MatMul(%wide, %tall, true, false) : float32[1024,256]", 2 * 4 * 256 * 512),
        ("MatMul(%x, %square, false, false) : float32[6,10]", 0),
        (RECURRENT, (2 << 20) + 13 * 4 * 5 * 2 * 8),
        ("Exp(%x)", 0),
    ],
)
def test_bytes(node: str, kept: int) -> None:
    graph = parse_program(f"graph @step({INPUTS}) {{\n%r = {node}\nreturn %r\n}}\n").graphs["step"]
    assert kernel_memory(next(iter(graph)), cores=2) == kept
