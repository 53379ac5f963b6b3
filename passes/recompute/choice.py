"""What of a piece runs again: all of it, or what a minimum cut finds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...ir.analysis.cost.memory import nbytes
from ...ir.analysis.cost.times import picoseconds
from ...ir.core.graph import Node
from ...ir.core.primitives import VIEWS
from ...ir.core.types import TupleType
from .candidates import Forward, bytes_of, is_cheap, is_view


def everything(forward: Forward, piece: Sequence[Node]) -> set[Node]:
    """All nodes of a piece that can run again."""
    return _without_bare_views(forward, [node for node in piece if not forward.obstacles[node]])


def what_is_cheap(forward: Forward, piece: Sequence[Node]) -> set[Node]:
    """The cheap nodes of a piece that save most when they run again: what they are computed from, down to products of
    matrices, convolutions and what enters the piece, is kept, in the fewest bytes."""
    return _cut(forward, piece, 1, lambda node: 0 if is_cheap(node) else None)


def what_is_worth(forward: Forward, piece: Sequence[Node], price: int) -> set[Node]:
    """The nodes of a piece that run again where a byte that is kept costs as much as ``price`` picoseconds."""
    return _cut(forward, piece, price, lambda node: picoseconds((node,), forward.target))


def _cut(forward: Forward, piece: Sequence[Node], price: int, cost: Callable[[Node], int | None]) -> set[Node]:
    """A minimum cut between what must be there and what the backward part takes. A node stands in it twice: is its
    value there in the backward part, and does it run again for that? If it is there without, its bytes are kept. If it
    runs again, that costs its time (None: it cannot), and its operands are there. What cannot do the one or the other
    stands in it once. Of equal cuts the one nearest to the backward part, which runs least again.

    Source: Jain et al., Checkmate, 2020, has the costs; the cut is that of PyTorch's partitioner, with them.
    """
    import networkx as nx
    from networkx.algorithms.flow import boykov_kolmogorov

    inside = set(piece)
    network = nx.DiGraph()
    costs = {node: None if forward.obstacles[node] else 0 if is_view(node) else cost(node) for node in piece}
    worst = 1 + sum(costs[node] or 0 for node in piece) + price * sum(nbytes(node.type) for node in piece)
    again: dict[Node, object] = {}
    """By node that can run again: where it does."""
    for node in piece:
        known = costs[node]
        # A view is kept with what it shows; a tuple's elements stand for themselves, unless the tuple itself is taken.
        whole = isinstance(node.type, TupleType) and node not in forward.wanted
        kept = worst if whole or (known is not None and is_view(node)) else price * nbytes(node.type)
        if known is None:
            network.add_edge("given", node, capacity=kept)
        else:
            again[node] = node if kept == worst else (node, "again")
            network.add_edge("given", again[node], capacity=known)
            if kept != worst:
                network.add_edge(again[node], node, capacity=kept)
            for operand in forward.operands(node):
                network.add_edge(operand, again[node], capacity=worst)
                if operand not in inside:
                    taken = operand in forward.kept or is_view(operand)
                    network.add_edge("given", operand, capacity=0 if taken else price * bytes_of(operand))
        if node in forward.wanted:
            network.add_edge(node, "wanted", capacity=worst)
    if "wanted" not in network:
        return set()
    # networkx gives the cut nearest to its target.
    _, (_, near) = nx.minimum_cut(network, "given", "wanted", flow_func=boykov_kolmogorov)
    return _without_bare_views(forward, [node for node in again if again[node] in near])


def _without_bare_views(forward: Forward, chosen: Sequence[Node]) -> set[Node]:
    """Nodes, in order, without views of what is kept: they take no memory."""
    left: set[Node] = set()
    for node in chosen:
        if node.op.name not in VIEWS or any(operand in left for operand in forward.operands(node)):
            left.add(node)
    return left


def parts(forward: Forward, chosen: Collection[Node]) -> list[set[Node]]:
    """What is chosen, in as many sets as do not compute from each other: each waits for a gradient of its own."""
    found: dict[Node, set[Node]] = {}
    for node in (node for node in forward.nodes if node in chosen):
        joined = {node}
        for operand in forward.operands(node):
            if operand in found and found[operand] is not joined:
                small, joined = sorted((found[operand], joined), key=len)
                joined |= small
                found.update(dict.fromkeys(small, joined))
        found[node] = joined
    return list({id(part): part for part in found.values()}.values())
