"""How long MindSpore's kernels on CPU take: the table of `ir/analysis/cost/times.py`, with the day and the machine.

As in :mod:`.kernel_memory`, a kernel's time is half of what a graph with three of it takes longer than one with one.
The least of several turns, in which both run, over the operations that `ir/analysis/cost/flops.py` counts.

    python -m benchmarks.kernel_time
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.machine import describe
from benchmarks.single_kernels import copies, prepared, single

TURNS, RUNS = 11, 2
X, IMAGE = "float32[1024,1024]", "float32[32,64,32,32]"
ELEMENTWISE = (
    "Abs", "Cos", "Erf", "Exp", "Floor", "GeLU", "HSwish", "HSigmoid", "Log", "Neg", "Reciprocal", "ReLU", "ReLU6",
    "Rsqrt", "Sigmoid", "SiLU", "Sin", "Softplus", "Sqrt", "Square", "Tanh", "Mish",
)  # fmt: skip
OF_TWO = ("Add", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "Pow")
OTHERS = (
    f"BiasAdd(%x, %row, 0) : {X}",
    f"Elu(%x, 1.0) : {X}",
    f"GeLUGrad(%x, %x, %x) : {X}",
    f"TanhGrad(%x, %x) : {X}",
    f"ReluGrad(%x, %x) : {X}",
    "BiasAddGrad(%x, 0) : float32[1024]",
    f"SoftmaxBackward(%x, %x, -1) : {X}",
    f"Softmax(%x, (-1,)) : {X}",
    f"LogSoftmax(%x, -1) : {X}",
    f"LayerNorm(%x, %row, %row, -1, -1, 0.00001) : ({X}, float32[1024,1], float32[1024,1])",
    f"Transpose(%x, (1, 0)) : {X}",
    "Transpose(%heads, (0, 2, 1, 3)) : float32[16,128,8,64]",
    f"Tile(%column, (1, 1024)) : {X}",
    f"DropoutGrad(%x, %x) {{keep_prob = 0.5}} : {X} kind(1)",
    f"MaskedFill(%x, %mask, %one) : {X}",
    f"Select(%mask, %x, %x) : {X}",
    "Cast(%x, 42) : float16[1024,1024]",
    "ReduceSum(%x, (1,), false, false) : float32[1024]",
    "ReduceMean(%x, (1,), false) : float32[1024]",
    f"MatMul(%x, %x, false, true) : {X}",
    "BatchMatMul(%heads, %heads, false, true) : float32[16,8,128,128]",
    'MaxPool(%maps) {pad_mode = "SAME", kernel_size = (1, 1, 3, 3), format = "NCHW", strides = (1, 1, 1, 1)}'
    f" : {IMAGE} kind(1)",
    "BatchNorm(%maps, %channel, %channel, %channel, %channel, false, 0.00001, 0.1, 0)"
    f" : ({IMAGE}, float32[64], float32[64], float32[64], float32[64])",
    'Conv2D(%maps, %filter) {mode = 1, out_channel = 64, kernel_size = (3, 3), pad_mode = "pad", pad = (1, 1, 1, 1), '
    'pad_list = (1, 1, 1, 1), format = "NCHW", group = 1, groups = 1, stride = (1, 1, 1, 1), dilation = (1, 1, 1, 1)}'
    f" : {IMAGE} kind(1)",
)


def run() -> str:
    kernels = [*(f"{name}(%x) : {X}" for name in ELEMENTWISE), *(f"{name}(%x, %x) : {X}" for name in OF_TWO), *OTHERS]
    lines = [describe()]
    for kernel in kernels:
        try:
            name, found = measured(kernel)
            lines.append(f'    "{name}": {found:.0f},')
        except (RuntimeError, TypeError, ValueError) as error:
            lines.append(f"    # {kernel.partition('(')[0]}: {str(error).split()[:12]}")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def measured(kernel: str) -> tuple[str, float]:
    """The primitive of a kernel in the text form, and its picoseconds for an operation."""
    from boost_compile.ir.analysis.cost.flops import estimated_flops

    program = single(kernel)
    node = next(iter(program.graphs["one"]))
    graphs = [copies(program, node, count) for count in (1, 3)]
    cells = [prepared(graph) for graph in graphs if graph is not None]
    if len(cells) < 2:
        raise RuntimeError("it takes no tensor of floats")
    batches = [batch() for _, batch in cells]
    turns = [[_seconds(cell, batch) for (cell, _), batch in zip(cells, batches, strict=True)] for _ in range(TURNS)]
    once, thrice = (min(times) for times in zip(*turns[2:], strict=True))
    return node.op.name, (thrice - once) / 2 / estimated_flops([node]) * 1e12


def _seconds(cell: Any, batch: list[Any]) -> float:
    begun = time.perf_counter()
    for _ in range(RUNS):
        cell(*batch)[0].asnumpy()
    return (time.perf_counter() - begun) / RUNS


if __name__ == "__main__":
    run()
