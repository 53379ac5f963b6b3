"""With a seed: random primitives (Dropout and its kin), which otherwise differ from run to run, get seeds of their own.

A seed follows from the session's and from where the node stands. The ranks of a job draw differently, the first as a
process that is alone.
"""

from __future__ import annotations

from ...ir.core.graph import Graph, Node
from ...ir.core.predicates import draws
from ...ir.core.wording import counted
from ...ir.rewrite.seeds import derive, set_seeds
from .context import Context


def applies(graph: Graph, context: Context) -> bool:
    return context.seed is not None and bool(_random(graph))


def run(graph: Graph, context: Context) -> str:
    nodes = _random(graph)
    own = [context.rank] if context.rank else []
    lost = [n for k, n in enumerate(nodes, 1) if not set_seeds(n, derive(context.seed, graph.name, k, *own))]
    context.unseeded[graph.name] = [f"{node.op.name} ({node.scope})" for node in lost]
    return f"{counted(len(nodes) - len(lost), 'random node')} seeded, {len(lost)} not reached"


def _random(graph: Graph) -> list[Node]:
    return [node for node in graph.all_nodes() if draws(node)]
