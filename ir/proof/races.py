"""Races: two effects on one state, one of them a write, that nothing orders.

Terms say nothing of tokens, since they follow the order of the node list. That order is the program's only if no race
is in it. So races are looked for here, on operands and tokens alone: what happens first must be an ancestor of what
happens later. A Load does not copy on every target, so what takes the loaded value, through views too, reads the state
as well (``views``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..analysis.effects.state_access import Summary, describe, place, summarize
from ..core.graph import Graph, Node, Value
from ..core.op import CALL
from ..core.predicates import is_effect, rests
from ..core.primitives import facts
from ..core.walk import live_nodes

_BUDGET = 10
"""Steps of searching, for each node of the graph, before it counts as too dear."""


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
    """The races of a graph and its functions. Linear but for what tokens do not order."""
    known = summarize(main)
    found: list[Race] = []
    for graph in main.all_graphs():
        found.extend(_Races(graph, known).find())
    return found


class _Races:
    def __init__(self, graph: Graph, known: dict[str, Summary]):
        self.graph = graph
        self.known = known
        live = live_nodes([graph.result])
        self.nodes = [n for n in graph if n in live]
        self.position = {n: i for i, n in enumerate(self.nodes)}
        self._left = _BUDGET * (len(self.nodes) + 100)

    def find(self) -> Iterator[Race]:
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
        if not any(w for of in events.values() for _, w in of):
            return
        self._chain()
        for key, of in events.items():
            name = key if isinstance(key, str) else key.name
            wrote: Node | None = None
            reads_since: list[tuple[Node, bool]] = []
            if not any(w for _, w in of):
                continue
            for node, writing in of:
                if wrote is not None and not self._before(wrote, node):
                    yield Race(self.graph.name, name, wrote, node, False)
                if writing:
                    for reader, view in reads_since:
                        if reader is not node and not self._before(reader, node):
                            yield Race(self.graph.name, name, reader, node, view)
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
                if user in seen or user not in self.position or user.op.name == "UpdateState":
                    continue
                if user.op.name == "Depend" and i == 1:
                    continue
                seen.add(user)
                if facts(user.op).view and not (user.op is CALL or is_effect(user)):
                    stack.append(user)
                else:
                    found.append(user)
        return found

    # -- what comes before what --------------------------------------------------------------------------------

    def _chain(self) -> None:
        """Two chains that most orders go through: the longest of tokens, and the longest of operands."""
        tokens = {n for n in self.nodes if n.op.name == "UpdateState"}
        self.chains = [self._numbered(tokens), self._numbered(set(self.nodes))]

    def _numbered(self, among: set[Node]) -> tuple[dict[Node, int], dict[Node, int]]:
        """Numbers the longest chain: for each node the last of it that it comes after, and the first that comes after
        it."""
        depth: dict[Value, int] = {}
        deepest: Node | None = None
        for node in self.nodes:
            if node in among:
                depth[node] = 1 + max((depth.get(v, 0) for v in node._operands), default=0)
                if deepest is None or depth[node] > depth[deepest]:
                    deepest = node
        chain: list[Node] = []
        while deepest is not None:
            chain.append(deepest)
            following = [v for v in deepest._operands if isinstance(v, Node) and v in depth]
            deepest = max(following, key=lambda v: depth[v], default=None)
        chain.reverse()
        number = {node: i for i, node in enumerate(chain)}
        none = len(chain)
        after: dict[Node, int] = {}
        for node in self.nodes:
            last = number.get(node, -1)
            for v in node._operands:
                if isinstance(v, Node):
                    last = max(last, after.get(v, -1))
            after[node] = last
        until = {node: number.get(node, none) for node in self.nodes}
        for node in reversed(self.nodes):
            here = until[node]
            for v in node._operands:
                if isinstance(v, Node) and v in until and until[v] > here:
                    until[v] = here
        return after, until

    def _before(self, first: Node, then: Node) -> bool:
        """Whether operands and tokens put ``first`` before ``then``."""
        if first is then:
            return True
        if any(until[first] <= after[then] for after, until in self.chains):
            return True
        low = self.position[first]
        stack, seen = [then], {then}
        while stack and self._left > 0:
            for v in stack.pop()._operands:
                if v is first:
                    return True
                if not isinstance(v, Node) or v in seen or self.position.get(v, -1) <= low:
                    continue
                if any(until[first] <= after[v] for after, until in self.chains):
                    return True
                seen.add(v)
                stack.append(v)
                self._left -= 1
        return False
