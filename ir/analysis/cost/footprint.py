"""The memory of a session on CPU: what the process grows by. Estimated from graphs as they run, state and nothing else.

What makes it up, and how each part was found (MindSpore 2.10; ``docs/memory.md`` has the measurements):

- ``state``: one copy. A Parameter's own buffer is what the kernels write.
- ``pool``: what the graphs compute. All graphs share one pool, which reserves 1 GB of addresses at a time, of which
  only what was ever touched is in memory: so it is the furthest that any graph reaches (:mod:`.pool`), not a sum. With
  it the inputs, twice: the user's arrays and the tensors that they become.
- ``constants``: tensors of each graph, held as long as it is.
- ``kernels``: what kernels keep for as long as they exist (:mod:`.kernel_memory`).
- ``engine``: code, thread stacks and what compilation leaves behind: one number for the process and one for each kernel
  (:data:`ENGINE`, :data:`KERNEL`), the only two that were fitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...core.display import Displayed
from ...core.graph import Graph
from .kernel_memory import kernel_memory
from .memory import graph_memory
from .pool import reach
from .running_order import is_kernel

ENGINE = 32_500 << 10
"""Bytes that a session costs, whatever it runs."""
KERNEL = 50 << 10
"""Bytes that a kernel costs once MindSpore has compiled it."""


@dataclass(frozen=True, slots=True)
class Footprint(Displayed):
    """Estimated bytes by cause; ``total`` is the growth of the process."""

    state: int
    pool: int
    constants: int
    kernels: int
    engine: int

    @property
    def total(self) -> int:
        return self.state + self.pool + self.constants + self.kernels + self.engine


def footprint(graphs: Iterable[Graph], state: int, cores: int) -> Footprint:
    """The estimate for a session that runs ``graphs``, their nodes in the order in which they run, on ``state`` bytes
    of state. ``cores``: those that it may use. Linear in nodes, but for a logarithm in the pool."""
    pool = constants = kernels = count = 0
    for graph in graphs:
        memory = graph_memory(graph)
        pool = max(pool, reach(graph) + 2 * memory.inputs)
        constants += memory.constants
        nodes = [node for part in graph.all_graphs() for node in part]
        count += sum(map(is_kernel, nodes))
        kernels += sum(kernel_memory(node, cores) for node in nodes)
    return Footprint(state, pool, constants, kernels, ENGINE + KERNEL * count)
