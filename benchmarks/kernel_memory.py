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
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.tables import table

if TYPE_CHECKING:
    from boost_compile.ir.core.graph import Graph, Node, Value
    from boost_compile.ir.core.program import Program

INPUTS = {
    "x": "float32[1024,1024]", "row": "float32[1024]", "column": "float32[1024,1]", "one": "float32[]",
    "mask": "bool[1024,1024]", "places": "bool[1024]", "image": "float32[16,64,64,32]",
    "tall": "float32[2048,256]", "square": "float32[256,256]",
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


COPIES = ("Neg", "Abs", "Square")
"""They make the operands of the copies of a kernel differ, or MindSpore would merge them."""


def run(path: str = "") -> str:
    from boost_compile.ir.analysis.cost.kernel_memory import kernel_memory
    from boost_compile.ir.rewrite.cpu.as_run import as_run
    from boost_compile.ir.text import parse_program

    import boost_compile as bc

    rows = []
    if path:
        program = bc.load(path)
        graphs = [(program, as_run(program.graphs[name])) for name in program.schedule.graphs()]
    else:
        graphs = [(one, one.graphs["one"]) for one in (parse_program(_text(kernel)) for kernel in KERNELS)]
    for program, graph in graphs:
        for node, count in _kinds(graph):
            found = _kept(program, node)
            kept = "-" if found is None else f"{found / 2**20:.2f}"
            estimate = kernel_memory(node, os.cpu_count() or 1)
            rows.append([f"`{_line(node)}`", str(count), kept, f"{estimate / 2**20:.2f}"])
    return "\n".join(table(["kernel", "times", "kept (MB)", "estimated (MB)"], rows))


def _text(kernel: str) -> str:
    inputs = ", ".join(f"%{name}: {kind}" for name, kind in INPUTS.items() if f"%{name}" in kernel)
    return f"graph @one({inputs}) {{\n%r = {kernel}\nreturn %r\n}}\n"


def _line(node: Node) -> str:
    from boost_compile.ir.core.graph import Constant

    operands = [str(v.literal if isinstance(v, Constant) else v.type)[:40] for v in node.operands]
    return f"{node.op.name}({', '.join(operands)}) : {node.type}"


def _kinds(graph: Graph) -> list[tuple[Node, int]]:
    """A node for each kernel of a graph, and how many there are of it."""
    from boost_compile.ir.analysis.cost.running_order import is_kernel

    nodes = [node for node in graph if is_kernel(node)]
    first = {(node.op, _line(node)): node for node in reversed(nodes)}
    return [(first[key], count) for key, count in Counter((node.op, _line(node)) for node in nodes).items()]


def _kept(program: Program, node: Node) -> float | None:
    """Bytes that a kernel keeps; None where it takes no tensor of floats that could differ."""
    graphs = [_graph(program, node, count) for count in (1, 1, 3)]  # the first of its kind costs more
    found = [_grown(graph) for graph in graphs if graph is not None]
    return (found[2] - found[1]) / 2 if found else None


def _graph(program: Program, node: Node, count: int) -> Program | None:
    """A program that runs a kernel so many times."""
    from boost_compile.ir.core.attributes import MonadValue
    from boost_compile.ir.core.graph import Constant, Graph, State
    from boost_compile.ir.core.program import Entry, Program, Schedule
    from boost_compile.ir.core.types import TensorType, TupleType, is_monad

    graph = Graph("one")
    given: dict[int, Value] = {
        i: graph.adopt(v) if isinstance(v, Constant) else graph.add_input(f"operand{i}", v.type)
        for i, v in enumerate(node.operands)
        if not isinstance(v, State) and not is_monad(v.type)
    }
    floats = (i for i, v in given.items() if isinstance(v.type, TensorType) and v.type.dtype.is_float)
    varied = next((i for i in floats if not isinstance(given[i], Constant)), None)
    if varied is None:
        return None
    state, results = {}, []
    others = [graph.create(name, [given[varied]], given[varied].type) for name in COPIES]
    for copy, other in enumerate(others):
        operands: list[Value] = []
        for i, v in enumerate(node.operands):
            if isinstance(v, State):
                name = f"{v.name}.{copy}"
                state[name] = replace(program.state[v.name], name=name)
                operands.append(graph.state(name, v.type))
            else:
                operands.append(other if i == varied else given.get(i) or graph.constant(MonadValue(str(v.type))))
        if copy >= count:
            results.append(other)
            continue
        kind = replace(node.type, ref="") if isinstance(node.type, TensorType) else node.type
        result = graph.create(node.op, operands, kind)
        whole = isinstance(kind, TupleType)
        results.append(graph.create("TupleGetItem", [result, graph.constant(0)]) if whole else result)
    graph.result = graph.create("MakeTuple", results)
    return Program({"one": graph}, state, Schedule((Entry("one"),)), metadata=program.metadata)


_alive: list[object] = []
"""The networks that were measured: what they keep would be free again, and given out to the next."""


def _grown(program: Program) -> int:
    """Bytes that malloc gives out for a program while it runs and afterwards."""
    import mindspore as ms
    from mindspore import nn

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "one.mindir")
        program.save(path)
        network = nn.GraphCell(ms.load(path))
    arrays = [np.ones(v.type.shape, v.type.dtype.value) for v in program.graphs["one"].inputs]  # type: ignore[union-attr]
    before = allocated()
    for _ in range(2):
        for result in network(*map(ms.Tensor, arrays)):
            result.asnumpy()
        gc.collect()
    _alive.append(network)
    return allocated() - before


if __name__ == "__main__":
    print(run(*sys.argv[1:2]))
