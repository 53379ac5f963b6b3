"""The memory of a session on CPU, from the program alone. Imports no MindSpore.

What makes it up, and how each part was found (MindSpore 2.10; ``docs/memory.md`` has the measurements):

- ``state``: one copy. A Parameter's own buffer is what the kernels write.
- ``pool``: what the graphs compute. All graphs share one pool, which reserves 1 GB of addresses at a time, of which
  only what was ever touched is in memory: so it is the furthest that any graph reaches (:mod:`.pool`), not a sum.
- ``constants``: tensors of each graph, held as long as it is.
- ``scratch``: what kernels keep for as long as they exist. oneDNN's gradient of a convolution's filter splits the batch
  among threads and keeps one filter for each; a matrix product keeps both operands in the order in which it reads them.
- ``engine``: code, thread stacks and what compilation leaves behind; for each graph, and for each of its nodes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.analysis.cost.memory import graph_memory
from ...ir.core.display import Displayed
from ...ir.core.graph import Graph, Node
from ...ir.core.predicates import is_effect, is_ordering
from ...ir.core.primitives import CPU, Family, named
from ...ir.core.program import Program
from ...ir.core.types import TensorType
from ..lowering import clearing, staggering
from ..lowering.lower import lower
from ..lowering.lowering import Context
from .pool import reach

ENGINE = 30 << 20
"""Bytes that the first graph costs, whatever it is."""
NODE = 20 << 10
"""Bytes that a node of a graph costs once MindSpore has compiled it."""
_PRODUCTS = named(Family.MATMUL)
_FILTER_GRADIENTS = named(Family.FILTER_GRADIENT)


@dataclass(frozen=True, slots=True)
class Footprint(Displayed):
    """Estimated bytes by cause; ``total`` is the growth of the process."""

    state: int
    pool: int
    constants: int
    scratch: int
    engine: int

    @property
    def total(self) -> int:
        return self.state + self.pool + self.constants + self.scratch + self.engine


def footprint(program: Program, threads: int | None = None, graphs: Mapping[str, Graph] | None = None) -> Footprint:
    """The estimate for a session of ``program`` on CPU. ``threads``: cores that it may use, by default all.
    ``graphs``: those of the schedule, :func:`as_run`, where they are at hand."""
    cores = threads or os.cpu_count() or 1
    pool = constants = scratch = nodes = 0
    for name in program.schedule.graphs():
        graph = as_run(program, name) if graphs is None else graphs[name]
        memory = graph_memory(graph)
        pool = max(pool, reach(graph) + memory.inputs)
        constants += memory.constants
        nodes += graph.total_nodes()
        scratch += sum(_scratch(node, cores) for part in graph.all_graphs() for node in part)
    state = sum(variable.nbytes for variable in program.state.values())
    return Footprint(state, pool, constants, scratch, ENGINE + NODE * nodes)


def as_run(program: Program, name: str) -> Graph:
    """A copy of a graph as it fills memory in a session on CPU, its nodes in the order in which they run: an effect as
    soon as all that it waits for is done, since MindSpore starts kernels so."""
    graph = lower(program.graphs[name], Context(program, CPU), (clearing, staggering)).graph.clone()[0]
    for part in graph.all_graphs():
        ready: dict[Node, tuple[int, int]] = {}
        for at, node in enumerate(part):
            waits = is_effect(node) or is_ordering(node) or node.op.name in ("MakeTuple", "Load")
            last = max((ready[v] for v in node._operands if isinstance(v, Node)), default=(-1, 0))
            ready[node] = (last[0], at) if waits else max((at, at), (last[0], at))
        part.reorder(sorted(part, key=ready.__getitem__))
    return graph


def _scratch(node: Node, cores: int) -> int:
    """Bytes that a kernel keeps for itself."""
    if node.op.name in _FILTER_GRADIENTS and isinstance(node.type, TensorType):
        return cores * node.type.nbytes
    if node.op.name in _PRODUCTS:
        return sum(t.nbytes for t in (node.operand(0).type, node.operand(1).type) if isinstance(t, TensorType))
    return 0
