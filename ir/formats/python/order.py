"""The nodes of a graph that are written down, in its order: not what only orders, passes on or chooses a function."""

from __future__ import annotations

from ...analysis.effects.state_access import place
from ...core.graph import Graph, Node, Value
from ...core.predicates import is_effect, written_operands
from ...core.primitives import Family, named
from ...core.types import is_monad
from ...core.walk import live_nodes, walk

_ORDERING = named(Family.ORDER)
_UNWRITTEN = _ORDERING | named(Family.CLOSURE)


def written_order(graph: Graph) -> tuple[list[Node], set[Node]]:
    """The nodes, and the Loads to be copied: their state is overwritten before they are used."""
    live = live_nodes([graph.result])
    order = [node for node in graph if node in live]
    copies = _overwritten(order)
    needed: set[Value] = {graph.result}
    for node in reversed(order):  # effects, and what they and the result are computed from
        if node.op.name != "UpdateState" and (node in needed or is_effect(node)):
            values = node._operands[:1] if node.op.name in _ORDERING else node._operands
            needed.update(v for v in values if not is_monad(v.type))
            needed.add(node)
    return [n for n in order if n in needed and (n.op.name not in _UNWRITTEN or n in copies)], copies


def resolved(value: Value, copies: set[Node]) -> Value:
    """A value, seen through the nodes that are not written down."""
    while isinstance(value, Node) and value.op.name in ("Load", "Depend") and value not in copies:
        value = value.operand(0)
    return value


def _overwritten(order: list[Node]) -> set[Node]:
    writes: dict[Value, list[int]] = {}
    index = {node: i for i, node in enumerate(order)}
    for i, node in enumerate(order):
        for at in written_operands(node):
            where = place(node.operand(at))
            if where is not None:
                writes.setdefault(where, []).append(i)
    found = set()
    for node in order:
        if node.op.name == "Load" and (where := place(node.operand(0))) in writes:
            last = max((index[u] for u in _consumers(node) if u in index), default=-1)
            if any(index[node] < at < last for at in writes[where]):
                found.add(node)
    return found


def _consumers(node: Node) -> set[Node]:
    """The nodes that take a value, through Depends; those that only order left out."""
    values = walk([node], lambda v: [user for user, i in v.use_sites() if user.op.name == "Depend" and i == 0])
    users = (user for value in values for user, i in value.use_sites() if user.op.name != "Depend" or i != 0)
    return {user for user in users if user.op.name not in _ORDERING and not is_monad(user.type)}
