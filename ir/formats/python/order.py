"""The order in which a graph's nodes are written down: operands first, effects as their tokens say, and as long as
possible within one scope, so that what belongs to one layer stands together."""

from __future__ import annotations

import heapq
import re

from ...analysis.effects.state_access import place
from ...core.graph import Graph, Node, Value
from ...core.predicates import is_effect, written_operands
from ...core.primitives import Family, named
from ...core.types import is_monad
from ...core.walk import live_nodes, walk

Scope = tuple[str, ...]
SILENT = named(Family.ORDER)
"""Nodes that only order or pass on: nothing is written for them."""
UNWRITTEN = SILENT | named(Family.CLOSURE)
"""These, and what binds or chooses a function: it stands where the function is called."""
_DEEPEST = 16
"""Scopes within more cells than this are cut off: they come from a file."""


def scope_of(node: Node) -> Scope:
    """The cells that a node stands in, outermost first: ``("conv1-Conv2d",)`` of ``Default/conv1-Conv2d/ReLU-op3``."""
    parts = [p for p in node.scope.split("/") if p]
    if parts and parts[0] in ("Default", "Gradients"):
        parts = parts[1:]
    if parts and re.search(r"-op\d+$", parts[-1]):
        parts = parts[:-1]
    return tuple(parts[:_DEEPEST])


def written_order(graph: Graph) -> tuple[list[Node], dict[Node, Scope], set[Node]]:
    """The nodes in order, the scope of each, and the Loads to be copied: their state is overwritten before use."""
    live = live_nodes([graph.result])
    nodes = [n for n in graph if n in live]
    scopes = _scopes(nodes)
    position = {node: i for i, node in enumerate(nodes)}
    waiting = {n: sum(1 for v in set(n._operands) if isinstance(v, Node)) for n in nodes}
    ready: dict[Scope, list[int]] = {}
    silent: list[Node] = []

    def release(node: Node) -> None:
        if node.op.name in UNWRITTEN or node.op.name == "TensorMove":  # a copy is made before something is overwritten
            silent.append(node)
            return
        scope = scopes[node]
        for depth in range(len(scope) + 1):
            heapq.heappush(ready.setdefault(scope[:depth], []), position[node])

    for node in nodes:
        if not waiting[node]:
            release(node)
    order: list[Node] = []
    done: set[Node] = set()
    here: Scope = ()
    while len(done) < len(nodes):
        node = silent.pop() if silent else _next(ready, here, nodes, done)
        done.add(node)
        order.append(node)
        if node.op.name not in UNWRITTEN:
            here = scopes[node]
        for user in node.uses:
            if user in waiting:
                waiting[user] -= 1
                if not waiting[user]:
                    release(user)
    copies = _overwritten(order)
    needed = _needed(order, graph)
    return [n for n in order if n in needed and (n.op.name not in UNWRITTEN or n in copies)], scopes, copies


def _needed(order: list[Node], graph: Graph) -> set[Node]:
    """Effects, and what they and the result are computed from; not what stands there for the sake of order alone."""
    needed: set[Node] = {graph.result} if isinstance(graph.result, Node) else set()
    for node in reversed(order):
        if node.op.name == "UpdateState" or not (node in needed or is_effect(node)):
            continue
        needed.add(node)
        values = node._operands[:1] if node.op.name in SILENT else node._operands
        needed.update(v for v in values if isinstance(v, Node) and not is_monad(v.type))
    return needed


def _next(ready: dict[Scope, list[int]], here: Scope, nodes: list[Node], done: set[Node]) -> Node:
    for depth in range(len(here), -1, -1):
        heap = ready.get(here[:depth], [])
        while heap:
            node = nodes[heapq.heappop(heap)]
            if node not in done:
                return node
    raise AssertionError("a graph without cycles always has a node that is ready")


def _scopes(nodes: list[Node]) -> dict[Node, Scope]:
    """Scopes of nodes; what only unpacks stands with what it unpacks, what only packs with its user."""
    found: dict[Node, Scope] = {}
    for node in nodes:
        source = node.operand(0) if node.num_operands else None
        if node.op.name == "TupleGetItem" and isinstance(source, Node) and source in found:
            found[node] = found[source]
        else:
            found[node] = scope_of(node)
    for node in reversed(nodes):
        users = [u for u in node.uses if u in found and u.op.name not in SILENT]
        if node.op.name == "MakeTuple" and len(users) == 1:
            found[node] = found[users[0]]
    return found


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
        if node.op.name != "Load" or (where := place(node.operand(0))) not in writes:
            continue
        last = max((index[u] for u in consumers(node) if u in index), default=-1)
        if any(index[node] < at < last for at in writes[where]):
            found.add(node)
    return found


def consumers(node: Node) -> set[Node]:
    """The nodes that take a value, through Depends; those that only order left out."""
    values = walk([node], lambda v: [user for user, i in v.use_sites() if user.op.name == "Depend" and i == 0])
    users = (user for value in values for user, i in value.use_sites() if user.op.name != "Depend" or i != 0)
    return {user for user in users if user.op.name not in SILENT and not is_monad(user.type)}


def resolved(value: Value, copies: set[Node]) -> Value:
    """A value, seen through the nodes that are not written down."""
    while isinstance(value, Node) and value.op.name in ("Load", "Depend") and value not in copies:
        value = value.operand(0)
    return value
