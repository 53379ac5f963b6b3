"""The memory of a session on CPU: what the process grows by. Estimated from graphs as they run, state and nothing else.

What makes it up, and how each part was found (MindSpore 2.10):

- ``state``: one copy. A Parameter's own buffer is what the kernels write.
- ``pool``: what the graphs compute. All graphs share one pool, which reserves 1 GB of addresses at a time, of which
  only what was ever touched is in memory: so it is the furthest that any graph reaches (:mod:`.pool`), not a sum. With
  it the inputs, twice: the user's arrays and the tensors that they become.
- ``constants``: tensors of each graph, held as long as it is.
- ``kernels``: what kernels keep for as long as they exist (:mod:`.kernel_memory`).
- ``engine``: pages of MindSpore's code, thread stacks and what compilation leaves behind. Four numbers, the only ones
  that were fitted: for the process (:data:`ENGINE`), for each node (:data:`NODE`), for each primitive of which there is
  one (:data:`PRIMITIVE`), and for the first that oneDNN generates much code for (:data:`GENERATED`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...core.display import Displayed
from ...core.graph import Graph
from ...core.primitives import Family, named
from .kernel_memory import kernel_memory
from .memory import always_there
from .pool import reach
from .running_order import is_kernel

ENGINE = 31_000 << 10
"""Bytes that a session costs, whatever it runs."""
NODE = 31 << 10
"""Bytes that a node costs once MindSpore has compiled it."""
PRIMITIVE = 240 << 10
"""Bytes that the first kernel of a primitive costs: the code that it runs."""
GENERATED = 3 << 20
"""Bytes that the first convolution or recurrent layer costs."""
_GENERATED = named(
    Family.CONVOLUTION, Family.TRANSPOSED_CONVOLUTION, Family.FILTER_GRADIENT, Family.RECURRENT
)  # fmt: skip


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
    primitives: set[str] = set()
    for graph in graphs:
        inputs, held = always_there(graph)
        pool = max(pool, reach(graph) + 2 * inputs)
        constants += held
        nodes = [node for part in graph.all_graphs() for node in part]
        count += len(nodes)
        primitives.update(node.op.name for node in nodes if is_kernel(node))
        kernels += sum(kernel_memory(node, cores) for node in nodes)
    generated = 0 if primitives.isdisjoint(_GENERATED) else GENERATED
    engine = ENGINE + NODE * count + PRIMITIVE * len(primitives) + generated
    return Footprint(state, pool, constants, kernels, engine)
