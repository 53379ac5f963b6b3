"""What MindSpore's kernels on CPU keep beside their operands and results, next to `ir/analysis/cost/kernel_memory.py`.

Each kernel runs as a graph of one node. What it keeps is what malloc has given out afterwards, less what it had given
out before (glibc's `mallinfo2`), less what a graph of one Abs keeps.

    python -m benchmarks.kernel_memory
"""

from __future__ import annotations

import ctypes
import gc
import os
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.tables import table

INPUTS = {
    "x": "float32[1024,1024]", "row": "float32[1024]", "column": "float32[1024,1]", "one": "float32[]",
    "mask": "bool[1024,1024]", "places": "bool[1024]", "image": "float32[16,64,64,32]",
}  # fmt: skip
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


def run() -> str:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        keeping: list[object] = []
        _kept("Abs(%x) : float32[1024,1024]", Path(folder), keeping)  # the pool's block
        nothing, _ = _kept("Neg(%x) : float32[1024,1024]", Path(folder), keeping)
        for kernel in KERNELS:
            found, estimate = _kept(kernel, Path(folder), keeping)
            rows.append([f"`{kernel}`", f"{(found - nothing) / 2**20:.1f}", f"{estimate / 2**20:.1f}"])
    return "\n".join(table(["kernel", "kept (MB)", "estimated (MB)"], rows))


def _kept(kernel: str, folder: Path, keeping: list[object]) -> tuple[int, int]:
    """Bytes that a kernel keeps, and the estimate. Its graph goes to ``keeping``, or its memory would be free again."""
    import mindspore as ms
    from boost_compile.ir.analysis.cost.kernel_memory import kernel_memory
    from boost_compile.ir.text import parse_program
    from mindspore import nn

    used = [name for name in INPUTS if f"%{name}" in kernel]
    inputs = ", ".join(f"%{name}: {INPUTS[name]}" for name in used)
    program = parse_program(f"graph @one({inputs}) {{\n%r = {kernel}\nreturn %r\n}}\n")
    graph = program.graphs["one"]
    path = folder / f"{len(keeping)}.mindir"
    program.save(path)
    network = nn.GraphCell(ms.load(str(path)))
    given = [ms.Tensor(np.ones(v.type.shape, v.type.dtype.value)) for v in graph.inputs]  # type: ignore[union-attr]
    before = allocated()
    for _ in range(2):
        network(*given).asnumpy()
        gc.collect()
    keeping.append(network)
    return allocated() - before, kernel_memory(next(iter(graph)), os.cpu_count() or 1)


if __name__ == "__main__":
    print(run())
