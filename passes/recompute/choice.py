"""What of a piece runs again: all of it, or only what costs little time."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.analysis.cost.memory import nbytes
from ...ir.core.graph import Node
from ...ir.core.primitives import VIEWS
from ...ir.core.types import TupleType
from .candidates import Forward, is_cheap, is_view


def everything(forward: Forward, piece: Sequence[Node]) -> set[Node]:
    """All nodes of a piece that can run again."""
    return _without_bare_views(forward, {node for node in piece if not forward.obstacles[node]})


def what_is_cheap(forward: Forward, piece: Sequence[Node]) -> set[Node]:
    """The cheap nodes of a piece that save most when they run again: what they are computed from, down to products of
    matrices, convolutions and what enters the piece, is kept, in the fewest bytes.

    A minimum cut between what must be there and what the backward part takes, a value being an edge of its bytes; of
    equal cuts the one nearest to the backward part, which runs least again.
    """
    import networkx as nx

    inside = set(piece)
    wanted = [node for node in piece if node in forward.wanted]
    network = nx.DiGraph()
    for node in piece:
        # A tuple's elements stand for themselves, unless the backward part takes the tuple as it is.
        whole = isinstance(node.type, TupleType) and node not in forward.wanted
        network.add_edge((node, "in"), (node, "out"), **({} if whole else {"capacity": nbytes(node.type)}))
        operands = forward.operands(node)
        if forward.obstacles[node] or not operands or not (is_cheap(node) or is_view(node)):
            network.add_edge("given", (node, "in"))
            continue
        for operand in operands:
            network.add_edge((operand, "out"), (node, "in"))
            if operand not in inside:  # it is kept anyway
                network.add_edge("given", (operand, "out"), capacity=0)
    for node in wanted:
        network.add_edge((node, "out"), "wanted")
    if "given" not in network or "wanted" not in network:
        return set()
    # networkx gives the cut nearest to its target.
    _, (_, near) = nx.minimum_cut(network, "given", "wanted")
    return _without_bare_views(forward, {node for node in piece if (node, "in") in near})


def _without_bare_views(forward: Forward, chosen: set[Node]) -> set[Node]:
    """Without views of what is kept: they take no memory."""
    left = set(chosen)
    for node in forward.nodes:
        bare = node.op.name in VIEWS and not any(operand in left for operand in forward.operands(node))
        if node in left and bare:
            left.discard(node)
    return left
