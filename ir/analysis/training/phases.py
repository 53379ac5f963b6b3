"""How many updates a node comes after.

A cell may train two networks in turn, or perturb the weights and go forward and backward again. Each forward part then
has a backward part of its own, between which weights are overwritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...core.graph import Node
from ...core.predicates import is_effect
from .network import BACKWARD, FORWARD

NETWORK = (FORWARD, BACKWARD)


def phases(order: Iterable[Node], parts: Mapping[Node, str]) -> dict[Node, int]:
    """The longest chain of updates before each node, by operands and tokens. ``order``: the nodes, operands first; what
    the network itself writes, such as statistics, is no update. Linear in nodes and operands."""
    found: dict[Node, int] = {}
    for node in order:
        before = max((found[v] for v in node._operands if isinstance(v, Node)), default=0)
        found[node] = before + (parts.get(node) not in NETWORK and is_effect(node))
    return found
