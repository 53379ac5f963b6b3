"""What the backward part computes of the forward part alone, put off until a gradient needs it.

MindSpore's runtime starts a node as soon as its operands are there. So the transposition of a matrix for the gradient
of a product, or the mask of a maximum, would run in the forward part, and what it makes would be in memory until the
backward part comes there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ...ir.analysis.cost.memory import nbytes
from ...ir.analysis.cost.running_order import running_order
from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.network import BACKWARD, FORWARD
from ...ir.core.graph import Graph, Node, Value
from ...ir.core.predicates import is_pure
from ...ir.core.walk import carried_operands, walk


def put_off(graph: Graph, network: Mapping[Node, str]) -> dict[Node, Node]:
    """The nodes to put off, each with the gradient that it is to wait for: the one that the first node takes which
    needs more of the forward part. In the graph they stand in front of that node then. Nothing is put off that takes
    more bytes of the forward part than it makes. Linear in nodes and operands."""
    place = {node: at for at, node in enumerate(running_order(graph))}
    position = {node: at for at, node in enumerate(graph)}
    ready: dict[Node, int] = {}
    late: dict[Node, Node] = {}
    before: dict[Node, list[Node]] = {}
    seen: set[Node] = set()

    def waits(value: Value) -> bool:
        return isinstance(value, Node) and network.get(value) == BACKWARD and value not in seen and is_pure(value)

    def taken(node: Node) -> list[Node]:
        return [v for v in carried_operands(node) if isinstance(v, Node) and waits(v)]

    for node in graph:
        takes = [v for v in carried_operands(node) if isinstance(v, Node)]
        part = network.get(node)
        ready[node] = place[node] if part == FORWARD else max((ready[v] for v in takes), default=-1)
        if part != BACKWARD or not takes:
            continue
        last = max(takes, key=ready.__getitem__)
        for value in takes if network.get(last) == BACKWARD else ():
            if ready[value] < ready[last] and waits(value):
                found = _not_before(last, walk([value], taken), position)
                seen.update(found)
                if found and _is_worth_it(found, network):
                    late |= dict.fromkeys(found, last)
                    before.setdefault(node, []).extend(found)
    if late:
        graph.reorder(_order(graph, late, before))
        graph.sort()
    return late


def _not_before(gradient: Node, found: Iterable[Node], position: Mapping[Node, int]) -> list[Node]:
    """Those of some nodes, in order, that nobody else takes before the gradient: it is not computed of them."""
    left: dict[Node, None] = {}
    for node in sorted(found, key=position.__getitem__, reverse=True):
        if all(user in left or position[user] > position[gradient] for user in node.users):
            left[node] = None
    return [*reversed(left)]


def _is_worth_it(found: Sequence[Node], network: Mapping[Node, str]) -> bool:
    """Whether what others take of these nodes is at least as large as what they take of the forward part."""
    inside = set(found)
    made = {node for node in found if any(u not in inside and not orders_only(u, i) for u, i in node.use_sites())}
    taken = {v for n in found for v in carried_operands(n) if isinstance(v, Node) and network.get(v) == FORWARD}
    return sum(nbytes(n.type) for n in made) >= sum(nbytes(n.type) for n in taken if n.op.name != "Load")


def _order(graph: Graph, late: Collection[Node], before: Mapping[Node, Sequence[Node]]) -> Iterator[Node]:
    """The nodes of the graph, each late one in front of the node that it was put off for."""
    for root in graph:
        stack = [(root, False)] if root not in late else []
        while stack:
            node, done = stack.pop()
            if done or node not in before:
                yield node
            else:
                stack += [(node, True), *((n, False) for n in reversed(before[node]))]
