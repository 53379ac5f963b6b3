"""Races: two effects on one state, one of them a write, that nothing orders.

What happens first must be an ancestor of what happens later, by operands and tokens. A Load does not copy on every
target, so what takes the loaded value, through views too, reads the state as well (``view``).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from ...core.graph import Graph, Node, Value
from ...core.op import CALL
from ...core.predicates import is_effect, rests
from ...core.primitives import facts
from ...core.walk import live_nodes
from .state_access import Summary, describe, place, summarize


@dataclass(frozen=True, slots=True)
class Race:
    """``first`` comes before ``then`` in the list, and nothing orders them; both touch ``state``. ``view``: ``first``
    takes a value that was loaded before, which matters where a Load is no copy."""

    graph: str
    state: str
    first: Node
    then: Node
    view: bool

    def __str__(self) -> str:
        return (
            f"graph '{self.graph}': {self.first!r} and {self.then!r} both touch '{self.state}', and nothing says "
            "which comes first"
        )


def races(main: Graph) -> list[Race]:
    """The races of a graph and its functions. For each node and operand it takes one operation on as many bits as
    there are effects."""
    known = summarize(main)
    found: list[Race] = []
    for graph in main.all_graphs():
        found.extend(_Races(graph, known).find())
    return found


class _Races:
    def __init__(self, graph: Graph, known: dict[str, Summary]):
        self.graph = graph
        self.known = known
        self.live = live_nodes([graph.result])
        self.nodes = [n for n in graph if n in self.live]

    def events(self) -> dict[Value | str, list[tuple[Node, bool]]]:
        """Who touches each state, in the order of the list, and whether it writes."""
        events: dict[Value | str, list[tuple[Node, bool]]] = {}
        for node in self.nodes:
            effect = describe(node, self.known)
            reads = set() if effect is None else set(effect.reads)
            writes = set() if effect is None else set(effect.writes)
            learned = facts(node.op).statistics
            if learned and not rests(node):
                writes |= {w for i in learned if (w := place(node.operand(i))) is not None}
            elif effect is None and node.op.name != "UpdateState" and not facts(node.op).view:
                # A pure primitive may take a state as it is.
                reads |= {w for v in node._operands if (w := self._bare(v)) is not None}
            if effect is not None and node.op.name == "Depend":
                continue
            for where in writes:
                events.setdefault(where, []).append((node, True))
            for where in reads - writes:
                events.setdefault(where, []).append((node, False))
            if effect is not None and effect.io:
                events.setdefault("output", []).append((node, True))
        return events

    def find(self) -> Iterator[Race]:
        needed: dict[Node, list[tuple[str, Node, bool]]] = {}
        for key, of in self.events().items():
            if any(writing for _, writing in of):
                self._needs(key if isinstance(key, str) else key.name, of, needed)
        bits = {first: 1 << i for i, first in enumerate({f: None for of in needed.values() for _, f, _ in of})}
        before: dict[Value, int] = {}
        last = {v: node for node in self.nodes for v in node._operands}
        for node in self.nodes:
            waits = reduce(operator.or_, (before.get(v, 0) for v in node._operands), 0)
            for name, first, view in needed.get(node, ()):
                if not waits & bits[first]:
                    yield Race(self.graph.name, name, first, node, view)
            before[node] = waits | bits.get(node, 0)
            for v in node._operands:
                if last[v] is node:  # nobody asks for it any more
                    before.pop(v, None)

    def _needs(
        self, name: str, events: list[tuple[Node, bool]], needed: dict[Node, list[tuple[str, Node, bool]]]
    ) -> None:
        """Who must come before whom, of those that touch one state: ``needed`` gets for each node the state, the other,
        and whether that takes a loaded value."""
        wrote: Node | None = None
        reads_since: list[tuple[Node, bool]] = []
        for node, writing in events:
            of = needed.setdefault(node, [])
            if wrote is not None:
                of.append((name, wrote, False))
            if writing:
                of += [(name, reader, view) for reader, view in reads_since if reader is not node]
                wrote, reads_since = node, []
            else:
                reads_since.append((node, False))
                if node.op.name == "Load":
                    reads_since.extend((user, True) for user in self._takers(node))

    @staticmethod
    def _bare(value: Value) -> Value | None:
        where = place(value)
        return where if where is not value or not isinstance(value, Node) else None

    def _takers(self, load: Node) -> list[Node]:
        """Who computes from a loaded value or a view of it."""
        found: list[Node] = []
        stack, seen = [load], {load}
        while stack:
            for user, i in stack.pop().use_sites():
                if user in seen or user not in self.live or user.op.name == "UpdateState":
                    continue
                if user.op.name == "Depend" and i == 1:
                    continue
                seen.add(user)
                if facts(user.op).view and not (user.op is CALL or is_effect(user)):
                    stack.append(user)
                else:
                    found.append(user)
        return found
