"""Seeds for the random primitives of a graph (Dropout and its kin), which otherwise differ from run to run."""

from __future__ import annotations

from ...ir.core.graph import Graph, Node
from ...ir.core.predicates import is_random
from ...ir.rewrite.seeds import derive, set_seeds


def seed_graph(graph: Graph, seed: int, rank: int = 0) -> list[Node]:
    """Gives every random node of ``graph`` and its functions its own seeds, derived from ``seed`` and where it stands.
    The ranks of a job draw differently, the first as a process that is alone.

    Changes the graph. Returns the random nodes whose seeds are neither known operands nor attributes.
    """
    nodes = [node for part in graph.all_graphs() for node in part if is_random(node)]
    own = [rank] if rank else []
    return [n for k, n in enumerate(nodes, 1) if not set_seeds(n, derive(seed, graph.name, k, *own))]
