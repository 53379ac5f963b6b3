"""What MindSpore's kernels on CPU keep beside their operands and results, next to `ir/analysis/cost/kernel_memory.py`.

A graph holds a kernel three times, another one once; both compute the operands that make the three differ. What a
kernel keeps is half of what malloc has given out more for the first (glibc's `mallinfo2`).

    python -m benchmarks.kernel_memory                  # the kernels that the rules came from
    python -m benchmarks.kernel_memory FILE.mindir      # every kernel of a training graph
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from typing import TYPE_CHECKING

from benchmarks.single_kernels import copies, kinds, line, prepared, single
from benchmarks.tables import table

if TYPE_CHECKING:
    from boost_compile.ir.core.graph import Node
    from boost_compile.ir.core.program import Program

BOTH, ROW, COLUMN, ONE = "%x, %x", "%x, %row", "%column, %x", "%x, %one"
KERNELS = (
    *(f"{name}({operands}) : float32[1024,1024]"
      for name in ("Add", "Sub", "Mul", "RealDiv", "Div", "Pow", "FloorDiv", "SquaredDifference", "Maximum")
      for operands in (BOTH, ROW, COLUMN, ONE)),
    "Less(%x, %row) : bool[1024,1024]",
    "MaskedFill(%x, %mask, %one) : float32[1024,1024]",
    "MaskedFill(%x, %places, %one) : float32[1024,1024]",
    "Transpose(%x, (1, 0)) : float32[1024,1024]",
    "Transpose(%image, (0, 2, 3, 1)) : float32[16,64,64,32]",
    "Softmax(%x, (-1,)) : float32[1024,1024]",
    "SoftmaxBackward(%x, %x, -1) : float32[1024,1024]",
    "MatMul(%x, %x, false, true) : float32[1024,1024]",
    "MatMul(%x, %x, true, false) : float32[1024,1024]",
    "MatMul(%tall, %tall, true, false) : float32[256,256]",
    "MatMul(%tall, %square, false, true) : float32[2048,256]",
    "MatMul(%tall, %square, false, false) : float32[2048,256]",
    "ReduceSum(%x, (0,), false, false) : float32[1024]",
    "GeLUGrad(%x, %x, %x) : float32[1024,1024]",
    "Tile(%column, (1, 1024)) : float32[1024,1024]",
)  # fmt: skip


class _Allocated(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
    ))  # fmt: skip


def allocated() -> int:
    """Bytes that malloc has given out in this process."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Allocated
    found = libc.mallinfo2()
    return int(found.uordblks + found.hblkhd)


def run(path: str = "") -> str:
    from boost_compile.ir.analysis.cost.kernel_memory import kernel_memory
    from boost_compile.ir.rewrite.cpu.as_run import as_run

    import boost_compile as bc

    rows = []
    if path:
        program = bc.load(path)
        graphs = [(program, as_run(program.graphs[name])) for name in program.schedule.graphs()]
    else:
        graphs = [(one, one.graphs["one"]) for one in map(single, KERNELS)]
    for program, graph in graphs:
        for node, count in kinds(graph):
            found = _kept(program, node)
            kept = "-" if found is None else f"{found / 2**20:.2f}"
            estimate = kernel_memory(node, os.cpu_count() or 1)
            rows.append([f"`{line(node)}`", str(count), kept, f"{estimate / 2**20:.2f}"])
    return "\n".join(table(["kernel", "times", "kept (MB)", "estimated (MB)"], rows))


def _kept(program: Program, node: Node) -> float | None:
    """Bytes that a kernel keeps; None where it takes no tensor of floats that could differ."""
    graphs = [copies(program, node, count) for count in (1, 1, 3)]  # the first of its kind costs more
    found = [_grown(graph) for graph in graphs if graph is not None]
    return (found[2] - found[1]) / 2 if found else None


_alive: list[object] = []
"""The networks that were measured: what they keep would be free again, and given out to the next."""


def _grown(program: Program) -> int:
    """Bytes that malloc gives out for a program while it runs and afterwards."""
    network, batch = prepared(program)
    before = allocated()
    for _ in range(2):
        for result in network(*batch()):
            result.asnumpy()
        gc.collect()
    _alive.append(network)
    return allocated() - before


if __name__ == "__main__":
    print(run(*sys.argv[1:2]))
