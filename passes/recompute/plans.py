"""Plans: which nodes of a forward part run again together. Each gives the pieces of one graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from math import isqrt

from ...ir.analysis.cost.times import picoseconds
from ...ir.core.graph import Node
from ..step.cells import named_cell
from .candidates import Forward, bytes_of, is_cheap, is_view
from .choice import everything, parts, what_is_cheap, what_is_worth
from .segments import inner, segments

Plan = Callable[[Forward], list[set[Node]]]


def kept_bytes(forward: Forward) -> int:
    """The bytes of forward values that are in memory for the backward part."""
    return sum(map(bytes_of, forward.kept))


def cheap(forward: Forward, limit: int) -> list[set[Node]]:
    """What costs little time, chosen in pieces of about ``limit`` bytes."""
    pieces = segments(forward, limit, free=lambda node: not is_cheap(node))
    return [what_is_cheap(forward, piece) for piece in inner(forward, pieces)]


def blocks(forward: Forward, limit: int) -> list[set[Node]]:
    """Everything, in pieces of about ``limit`` bytes."""
    return [everything(forward, piece) for piece in inner(forward, segments(forward, limit))]


def root_blocks(forward: Forward) -> list[set[Node]]:
    """Everything, in as many pieces as the root of the number of values that are in memory for the backward part."""
    return blocks(forward, kept_bytes(forward) // max(isqrt(len(forward.kept)), 1))


def cells(forward: Forward, glob: str) -> list[set[Node]]:
    """Everything in each cell whose scope, from any level on, matches a glob; the outermost that does counts."""
    found: dict[str, list[Node]] = {}
    for node in forward.nodes:
        scope = named_cell(node.scope, glob)
        if scope is not None:
            found.setdefault(scope, []).append(node)
    named = {node for nodes in found.values() for node in nodes}
    rest = [[node] for node in forward.nodes if node not in named]
    return [everything(forward, piece) for piece in inner(forward, [*found.values(), *rest])[: len(found)]]


class Priced:
    """Plans by what a byte that is kept costs, for copies of the graphs that they were made of. Pieces that look the
    same are planned once. Where two prices choose the same, so do those between: what a cut costs is linear in the
    price, so one that is least at both ends is least between them."""

    def __init__(self, forwards: Mapping[str, Forward]):
        self._forwards = forwards
        self._position = {name: {n: at for at, n in enumerate(f.graph)} for name, f in forwards.items()}
        self._pieces: dict[tuple[str, int], list[list[Node]]] = {}
        self._known: dict[object, dict[int, list[int]]] = {}

    def number(self, count: int) -> int:
        """How many pieces ``count`` makes of the graph with the most."""
        return max((len(self._of(name, count)) for name in self._forwards), default=0)

    def plan(self, count: int, price: int, higher: int, first: int) -> Plan:
        """The forward part in about ``count`` pieces, in the ``first`` of which a byte costs the ``higher`` price."""
        chosen: dict[str, list[list[int]]] = {}
        for name, forward in self._forwards.items():
            again = self._chosen(name, count, price, higher, first)
            chosen[name] = [[self._position[name][n] for n in part] for one in again for part in parts(forward, one)]

        def pieces(forward: Forward) -> list[set[Node]]:
            nodes = list(forward.graph)
            return [{nodes[at] for at in part} for part in chosen[forward.graph.name]]

        return pieces

    def times(self, count: int, price: int, higher: int, first: int) -> dict[str, int]:
        """Picoseconds that the nodes of such a plan take, by the graph."""
        return {
            name: picoseconds(chain.from_iterable(self._chosen(name, count, price, higher, first)), forward.target)
            for name, forward in self._forwards.items()
        }

    def _chosen(self, name: str, count: int, price: int, higher: int, first: int) -> list[list[Node]]:
        """What runs again of each piece of a graph."""
        forward = self._forwards[name]
        return [
            self._again(forward, piece, higher if k < first else price) for k, piece in enumerate(self._of(name, count))
        ]

    def _of(self, name: str, count: int) -> list[list[Node]]:
        if (name, count) not in self._pieces:
            forward = self._forwards[name]
            self._pieces[name, count] = inner(forward, segments(forward, kept_bytes(forward) // count))
        return self._pieces[name, count]

    def _again(self, forward: Forward, piece: list[Node], price: int) -> list[Node]:
        known = self._known.setdefault(_look(forward, piece), {})
        if price not in known:
            lower = max((p for p in known if p < price), default=price)
            upper = min((p for p in known if p > price), default=price)
            if lower < price < upper and known[lower] == known[upper]:
                known[price] = known[lower]
            else:
                again = what_is_worth(forward, piece, price)
                known[price] = [at for at, node in enumerate(piece) if node in again]
        return [piece[at] for at in known[price]]


def _look(forward: Forward, piece: list[Node]) -> tuple[object, ...]:
    """What a cut of a piece depends on."""
    at = {node: i for i, node in enumerate(piece)}
    outside: dict[Node, int] = {}

    def operand(value: Node) -> object:
        if value in at:
            return at[value]
        known = value in forward.kept or is_view(value)
        return outside.setdefault(value, len(outside)), 0 if known else bytes_of(value)

    return tuple(
        (node.op, node.type, node in forward.wanted, not forward.obstacles[node], *map(operand, forward.operands(node)))
        for node in piece
    )
