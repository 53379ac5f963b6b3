"""The gradient that a piece of copies waits for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate

from ...ir.analysis.training.network import BACKWARD
from ...ir.core.graph import Node
from ...ir.core.types import TensorType
from .candidates import Forward


class Gradients:
    """The gradients of a graph, in the order in which it runs.

    Not every backward node is one. The runtime computes a derivative such as 1 - y² as soon as y is there, and who
    waited for that would run in the forward part. A gradient comes after the last value that the backward part takes:
    it is *late*. Where the cell updates in between, each forward part has gradients of its own; the weights that a
    copy reads are overwritten before those of a later one.

    A node that is not late may run at any time before the first late node that it leads to. So all copies together
    have an order in which they can run, if each copy runs right before that node, and waits for what comes before it.
    """

    def __init__(self, forward: Forward):
        self._parts = forward.parts
        order = forward.order
        self._phase = forward.phase
        last = _last_wanted(order, forward.wanted, self._phase)
        late = {node for at, node in enumerate(order) if at > last(self._phase[node])}
        self._order = order
        self._due: dict[Node, int] = {}
        """By when a node runs: a late one at its place, another before the first late one behind it, in its phase."""
        for at, node in reversed(list(enumerate(order))):
            due = [at] if node in late else [self._due[user] for user in self._backward_users(node)]
            self._due[node] = min(due, default=len(order))
        self._late = {n for n in late if forward.parts.get(n) == BACKWARD and isinstance(n.type, TensorType)}
        self._gradients: dict[int, list[Node]] = {}
        """The gradients of each phase, in order."""
        for node in order:
            if node in self._late:
                self._gradients.setdefault(self._phase[node], []).append(node)

    def reaching(self, users: Iterable[Node]) -> Node | None:
        """The gradient that meets what ``users`` compute from forward values: the last one that the first late node
        behind them takes; where it takes none, the last one that runs before it. None if there is none."""
        phase, due = min((self._phase[user], self._due[user]) for user in users)
        first = self._order[due].operands if due < len(self._order) else ()
        taken = [v for v in first if isinstance(v, Node) and v in self._late and self._phase[v] == phase]
        if taken:
            return max(taken, key=self._due.__getitem__)
        gradients = self._gradients.get(phase, [])
        before = bisect_left(gradients, due, key=self._due.__getitem__)
        return gradients[before - 1] if before else None

    def _backward_users(self, node: Node) -> list[Node]:
        phase, parts = self._phase[node], self._parts
        return [
            u for u in node.users
            if parts.get(u) == BACKWARD and self._phase[u] == phase and not _orders_effects(u)
        ]  # fmt: skip


def _orders_effects(user: Node) -> bool:
    """Other than the Depend by which a copy of an earlier pass waits for its gradient: that copy must run behind it."""
    if user.op.name == "MakeTuple":
        return all(u.op.name == "UpdateState" for u in user.users)
    return user.op.name == "UpdateState"


def _last_wanted(order: Sequence[Node], wanted: Collection[Node], phase: Mapping[Node, int]) -> Callable[[int], int]:
    """The place of the last value of a phase, and of those before it, that the backward part takes; -1 for none."""
    last: dict[int, int] = {}
    for at, node in enumerate(order):
        if node in wanted:
            last[phase[node]] = at
    known = sorted(last)
    places = [-1, *accumulate((last[p] for p in known), max)]
    return lambda phase: places[bisect_right(known, phase)]
