"""Where gradients leave the backward part of a graph, whatever the update side does with them."""

from __future__ import annotations

from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.network import BACKWARD, FORWARD, network_parts
from ...ir.core.graph import Graph, Node
from ...ir.core.types import TensorType


def crossings(graph: Graph) -> list[tuple[Node, int]]:
    """The uses of backward values by the update side."""
    parts = network_parts(graph)
    found: list[tuple[Node, int]] = []
    for node in graph:
        if parts.get(node) != BACKWARD or not isinstance(node.type, TensorType) or not node.type.dtype.is_float:
            continue
        found.extend(
            (user, i)
            for user, i in node.use_sites()
            if parts.get(user) not in (FORWARD, BACKWARD) and takes_value(user, i)
        )
    return found


def takes_value(user: Node, i: int) -> bool:
    """Whether a use takes the value: it neither merely waits for it nor asks for its shape alone."""
    return user.op.name != "ZerosLike" and not orders_only(user, i)
