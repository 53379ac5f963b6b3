"""Plans: which nodes of a forward part run again together. Each gives the pieces of one graph."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

from ...ir.core.graph import Node
from ..step.cells import named_cell
from .candidates import Forward, bytes_of, is_cheap, is_view
from .choice import everything, what_is_cheap
from .segments import inner, segments

Plan = Callable[[Forward], list[set[Node]]]


def kept_bytes(forward: Forward) -> int:
    """The bytes of forward values that the backward part takes."""
    return sum(bytes_of(node) for node in forward.wanted if not is_view(node))


def cheap(forward: Forward, limit: int) -> list[set[Node]]:
    """What costs little time, chosen in pieces of about ``limit`` bytes."""
    pieces = segments(forward, limit, free=lambda node: not is_cheap(node))
    return [what_is_cheap(forward, piece) for piece in inner(forward, pieces)]


def blocks(forward: Forward, limit: int) -> list[set[Node]]:
    """Everything, in pieces of about ``limit`` bytes."""
    return [everything(forward, piece) for piece in inner(forward, segments(forward, limit))]


def root_blocks(forward: Forward) -> list[set[Node]]:
    """Everything, in as many pieces as the root of the number of values that the backward part takes."""
    count = sum(not is_view(node) for node in forward.wanted)
    return blocks(forward, kept_bytes(forward) // max(isqrt(count), 1))


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
