"""The nodes of a graph in the order in which they are written, grouped by the cells that they stand in."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.graph import Graph, Node, Value
from ...core.op import CALL
from ...core.types import is_monad
from ...core.walk import walk
from .functions import call_of
from .order import Scope, resolved, written_order


@dataclass(eq=False)
class Region:
    """A run of nodes of one cell: those at positions ``start`` to ``end``. ``component`` is the cell's part of the
    scope (``conv1-Conv2d``), ``items`` its own nodes and the runs of the cells in it."""

    component: str
    start: int
    end: int
    items: list[Node | Region] = field(default_factory=list)

    def members(self) -> list[Node]:
        """Its nodes, in order, at any depth."""
        below = walk(reversed(self.items), lambda item: reversed(item.items) if isinstance(item, Region) else ())
        return [item for item in below if isinstance(item, Node)]


@dataclass
class Layout:
    """``root`` is the whole graph. ``last_use``: the position of a value's last user (the result is behind all)."""

    graph: Graph
    root: Region
    position: dict[Node, int]
    operands: dict[Node, list[Value]]
    last_use: dict[Value, int]
    uses: dict[Value, int]
    result: Value
    copies: set[Node]


def lay_out(graph: Graph) -> Layout:
    """The nodes of ``graph``, without what only orders, as nested regions. Linear in nodes."""
    order, scopes, copies = written_order(graph)
    position = {node: i for i, node in enumerate(order)}
    operands: dict[Node, list[Value]] = {}
    last_use: dict[Value, int] = {}
    uses: dict[Value, int] = {}
    for i, node in enumerate(order):
        given = call_of(node).values() if node.op is CALL else node.operands
        taken = operands[node] = [resolved(v, copies - {node}) for v in given if not is_monad(v.type)]
        for value in taken:
            last_use[value] = i
            uses[value] = uses.get(value, 0) + 1
    result = resolved(graph.result, copies)
    last_use[result] = len(order)
    uses[result] = uses.get(result, 0) + 1
    root = Region("", 0, len(order), _grouped(order, scopes, 0, 0))
    return Layout(graph, root, position, operands, last_use, uses, result, copies)


def _grouped(nodes: list[Node], scopes: dict[Node, Scope], depth: int, start: int) -> list[Node | Region]:
    items: list[Node | Region] = []
    at = 0
    while at < len(nodes):
        scope = scopes[nodes[at]]
        if len(scope) <= depth:
            items.append(nodes[at])
            at += 1
            continue
        stop = at + 1
        while stop < len(nodes) and scopes[nodes[stop]][depth : depth + 1] == scope[depth : depth + 1]:
            stop += 1
        inner = _grouped(nodes[at:stop], scopes, depth + 1, start + at)
        items.append(Region(scope[depth], start + at, start + stop, inner))
        at = stop
    return items
