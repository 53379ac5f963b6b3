"""Graphs that run one kernel, once or several times: what more of it costs is the kernel's own."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from boost_compile.ir.core.graph import Graph, Node, Value
    from boost_compile.ir.core.program import Program

INPUTS = {
    "x": "float32[1024,1024]", "row": "float32[1024]", "column": "float32[1024,1]", "one": "float32[]",
    "mask": "bool[1024,1024]", "places": "bool[1024]", "image": "float32[16,64,64,32]",
    "tall": "float32[2048,256]", "square": "float32[256,256]", "heads": "float32[16,8,128,64]",
    "maps": "float32[32,64,32,32]", "channel": "float32[64]", "filter": "float32[64,64,3,3]",
}  # fmt: skip
COPIES = ("Neg", "Abs", "Square")
"""They make the operands of the copies of a kernel differ, or MindSpore would merge them."""


def single(kernel: str) -> Program:
    """A program of one node, in the text form, on operands of :data:`INPUTS`."""
    from boost_compile.ir.text import parse_program

    inputs = ", ".join(f"%{name}: {kind}" for name, kind in INPUTS.items() if f"%{name}" in kernel)
    return parse_program(f"graph @one({inputs}) {{\n%r = {kernel}\nreturn %r\n}}\n")


def line(node: Node) -> str:
    """A kernel as text: the primitive, its constants, the types of its operands and of its result."""
    from boost_compile.ir.core.graph import Constant

    operands = [str(v.literal if isinstance(v, Constant) else v.type)[:40] for v in node.operands]
    return f"{node.op.name}({', '.join(operands)}) : {node.type}"


def kinds(graph: Graph) -> list[tuple[Node, int]]:
    """A node for each kernel of a graph, and how many there are of it."""
    from boost_compile.ir.analysis.cost.running_order import is_kernel

    nodes = [node for node in graph if is_kernel(node)]
    first = {(node.op, line(node)): node for node in reversed(nodes)}
    return [(first[key], count) for key, count in Counter((node.op, line(node)) for node in nodes).items()]


def copies(program: Program, node: Node, count: int) -> Program | None:
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


def prepared(program: Program) -> tuple[Any, Callable[[], list[Any]]]:
    """A Cell that runs the graph ``one`` of a program, and what makes tensors of ones for it."""
    import mindspore as ms
    from mindspore import nn

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "one.mindir")
        program.save(path)
        network = nn.GraphCell(ms.load(path))
    arrays = [np.ones(v.type.shape, v.type.dtype.value) for v in program.graphs["one"].inputs]  # type: ignore[union-attr]
    return network, lambda: [ms.Tensor(array) for array in arrays]
