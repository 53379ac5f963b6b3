"""The order in which MindSpore will run a graph of its compiler.

A file has that order. Inside of the compiler the nodes stand as a walk from the result meets them, so a node that takes
a Load may stand behind a write of that state. MindSpore lets all who take a Load run before the next write, unless they
need what it writes (its pass ``auto_monad_reorder``, which comes after the bridge's).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from ...ir.core.graph import Graph, Node
from ...ir.core.predicates import is_effect


def order_as_run(graph: Graph) -> None:
    """Puts each node that writes nothing in front of all writes that it does not need, here and in all functions."""
    for body in graph.all_graphs():
        _order(body)


def _order(graph: Graph) -> None:
    nodes = list(graph)
    place = {node: i for i, node in enumerate(nodes)}
    waits = [sum(isinstance(v, Node) and v.graph is graph for v in set(node._operands)) for node in nodes]
    ready = [i for i, others in enumerate(waits) if not others]
    writes = [i for i in ready if _writes(nodes[i])]
    others = [i for i in ready if not _writes(nodes[i])]
    heapify(others)
    heapify(writes)
    order: list[Node] = []
    while others or writes:
        node = nodes[heappop(others or writes)]
        order.append(node)
        for user in node.uses:
            if (at := place.get(user)) is not None:
                waits[at] -= 1
                if not waits[at]:
                    heappush(writes if _writes(user) else others, at)
    graph.reorder(order)


def _writes(node: Node) -> bool:
    return is_effect(node) and node.op.name != "Load"
