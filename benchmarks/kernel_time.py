"""How long MindSpore's kernels on CPU take: the table of `ir/analysis/cost/times.py`, with the day and the machine.

As in :mod:`.kernel_memory`, a kernel's time is half of what a graph with three of it takes longer than one with one.
The least of several turns, in which both run, over the operations that `ir/analysis/cost/flops.py` counts.

    python -m benchmarks.kernel_time            # the kernels of a list
    python -m benchmarks.kernel_time FILE ...   # those of steps: of a program, or of several in turns

A step's kernels are timed by MindSpore's profiler; for each the least of several steps counts. Printed are, for each
primitive, how many there are, their milliseconds, and their picoseconds for an operation.
"""

from __future__ import annotations

import csv
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe
from benchmarks.memory import random_values
from benchmarks.single_kernels import copies, prepared, single

TURNS, RUNS, STEPS = 11, 2, 8
RENAMED = {"MatMulExt": "BatchMatMul"}
"""Primitives that MindSpore computes by another's kernel."""
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


def in_steps(paths: list[str]) -> str:
    import mindspore

    import boost_compile as bc

    mindspore.set_device("CPU")
    sessions = [bc.Session(bc.load(path), seed=1) for path in paths]
    rng = np.random.default_rng(0)
    batches = [[random_values(rng, value.type) for value in session.consumer.inputs] for session in sessions]
    least: list[dict[tuple[str, str], float]] = [{} for _ in sessions]
    for turn in range(STEPS):
        for session, batch, known in zip(sessions, batches, least, strict=True):
            for kernel, took in _profiled(session, batch).items() if turn else ():
                known[kernel] = min(took, known.get(kernel, took))
    lines = [describe()]
    for path, session, known in zip(paths, sessions, least, strict=True):
        lines.append(f"{path}: {sum(known.values()):.1f} ms in kernels")
        lines += _by_primitive(session.program, known)
    return "\n".join(lines)


def _profiled(session: Any, batch: list[Any]) -> dict[tuple[str, str], float]:
    """The milliseconds of each kernel of a step, by its primitive and its name."""
    from mindspore.profiler import ProfilerActivity, profile, tensorboard_trace_handler

    with tempfile.TemporaryDirectory() as folder:
        profiler = profile(activities=[ProfilerActivity.CPU], on_trace_ready=tensorboard_trace_handler(folder))
        profiler.start()
        float(session.step(*batch).loss)
        profiler.stop()
        (table,) = Path(folder).rglob("cpu_op_detail_info_*.csv")
        with table.open() as rows:
            return {
                (row["op_type"], row["full_op_name"]): float(row["op_total_time(ms)"]) for row in csv.DictReader(rows)
            }


def _by_primitive(program: Any, known: dict[tuple[str, str], float]) -> list[str]:
    """Operations are those of the graphs as the session runs them; MindSpore may have renamed or merged some."""
    from boost_compile.ir.analysis.cost.flops import estimated_flops
    from boost_compile.ir.rewrite.cpu.as_run import as_run

    operations: Counter[str] = Counter()
    for name in program.schedule.graphs():
        for node in as_run(program.graphs[name]).all_nodes():
            operations[RENAMED.get(node.op.name, node.op.name)] += estimated_flops([node])
    times: dict[str, list[float]] = {}
    for (name, _), milliseconds in known.items():
        times.setdefault(name, []).append(milliseconds)
    return [
        f"    {name:<24} {len(found):>5} {sum(found):>9.2f} {1e9 * sum(found) / max(operations[name], 1):>12.0f}"
        for name, found in sorted(times.items(), key=lambda entry: -sum(entry[1]))
    ]


def _seconds(cell: Any, batch: list[Any]) -> float:
    begun = time.perf_counter()
    for _ in range(RUNS):
        cell(*batch)[0].asnumpy()
    return (time.perf_counter() - begun) / RUNS


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(in_steps(sys.argv[1:]))
    else:
        run()
