"""The forward part in pieces that run again one at a time, cut where few bytes cross from one piece to the next."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from ...ir.core.graph import Node
from .candidates import Forward, bytes_of, is_view


def segments(forward: Forward, limit: int, free: Callable[[Node], bool] = lambda node: False) -> list[list[Node]]:
    """The nodes of a forward part in pieces, each with about ``limit`` bytes of values that are kept for the backward
    part. A piece ends at the narrowest place behind half of its bytes; values that are ``free`` to keep do not count
    there. Linear in nodes and operands.

    Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, algorithm 3; there a piece ends where the
    limit is reached.
    """
    nodes, crossing = forward.nodes, _crossing(forward, free)
    cuts = [0]
    held, best = 0, 0
    for at, node in enumerate(nodes):
        held += bytes_of(node) if node in forward.kept else 0
        if 2 * held < limit or crossing[at + 1] <= crossing[best] or best <= cuts[-1]:
            best = at + 1
        if held >= limit:
            cuts.append(best)
            held = sum(bytes_of(n) for n in nodes[best : at + 1] if n in forward.kept)
            best = at + 1
    return [nodes[a:b] for a, b in pairwise([*cuts, len(nodes)]) if a < b]


def inner(forward: Forward, pieces: list[list[Node]]) -> list[list[Node]]:
    """The nodes of each piece that only it computes from: what another piece takes is kept, and so is what leaves the
    forward part."""
    piece_of = {node: i for i, piece in enumerate(pieces) for node in piece}
    return [
        [n for n in piece if all(piece_of[user] == i for user in users_through_views(forward, n))]
        for i, piece in enumerate(pieces)
    ]


def users_through_views(forward: Forward, node: Node) -> list[Node]:
    """The forward nodes that compute from a node or from a view of it."""
    found: dict[Node, None] = {}
    stack = [node]
    while stack:
        for user in forward.users(stack.pop()):
            if user not in found:
                found[user] = None
                if is_view(user):
                    stack.append(user)
    return list(found)


def _crossing(forward: Forward, free: Callable[[Node], bool]) -> list[int]:
    """For each place, before node 0, before node 1, …, behind the last: the bytes made before it and used behind it,
    of values that are not ``free``."""
    position = {node: at for at, node in enumerate(forward.nodes)}
    change = [0] * (len(position) + 2)
    for node, at in position.items():
        if not is_view(node) and not free(node):
            last = max((position[user] for user in users_through_views(forward, node)), default=at)
            source = node.operand(0) if node.op.name == "TupleGetItem" else node  # an element is there with its tuple
            change[position.get(source, at) + 1] += bytes_of(node)  # type: ignore[call-overload]
            change[max(last, at) + 1] -= bytes_of(node)
    crossing, now = [], 0
    for at in range(len(position) + 1):
        now += change[at]
        crossing.append(now)
    return crossing
