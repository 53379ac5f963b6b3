"""The gradient that a piece of copies waits for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from ...ir.analysis.cost.running_order import running_order
from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.network import BACKWARD
from ...ir.core.graph import Node
from ...ir.core.types import TensorType
from ...ir.core.walk import walk
from .candidates import Forward


class Gradients:
    """The gradients of a graph, in the order in which it runs.

    Not every backward node is one. The runtime computes a derivative such as 1 - y² as soon as y is there, and who
    waited for that would run in the forward part. A gradient comes after the last value that the backward part takes.
    """

    def __init__(self, forward: Forward):
        self._parts = forward.parts
        self._place = {node: at for at, node in enumerate(running_order(forward.graph))}
        self._end = max((self._place[node] for node in forward.wanted), default=-1)
        self._nodes = list(forward.graph)
        self._position = {node: at for at, node in enumerate(self._nodes)}
        self._gradients = [at for at, node in enumerate(self._nodes) if self._is_gradient(node)]
        self._others = [at for at, node in enumerate(self._nodes) if self._is_backward(node)]

    def reaching(self, users: Iterable[Node]) -> Node | None:
        """The gradient that meets what ``users`` compute from forward values: the last one that the first node takes
        which runs after the forward part; where it takes none, the last one that stands before the users, or
        any backward value there. It depends on none of them. None if there is none."""
        users = list(users)
        behind = walk(users, lambda node: () if self._is_late(node) else self._backward_users(node))
        late = [node for node in behind if self._is_late(node)]
        first = min(late, key=self._place.__getitem__, default=None)
        taken = [v for v in first.operands if isinstance(v, Node) and self._is_gradient(v)] if first else []
        if taken:
            return max(taken, key=self._place.__getitem__)
        start = min(self._position[user] for user in users)
        for places in (self._gradients, self._others):
            if before := bisect_left(places, start):
                return self._nodes[places[before - 1]]
        return None

    def _backward_users(self, node: Node) -> list[Node]:
        return [u for u, i in node.use_sites() if self._parts.get(u) == BACKWARD and not orders_only(u, i)]

    def _is_late(self, node: Node) -> bool:
        return self._place[node] > self._end

    def _is_gradient(self, node: Node) -> bool:
        return self._is_backward(node) and self._is_late(node)

    def _is_backward(self, node: Node) -> bool:
        return self._parts.get(node) == BACKWARD and isinstance(node.type, TensorType)
