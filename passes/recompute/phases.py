"""How many updates a node comes after.

A cell may train two networks in turn, or perturb the weights and go forward and backward again. Each forward part then
has a backward part of its own, and a copy of its values must not wait for a gradient of a later one: the weights that
the copy reads are overwritten in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...ir.analysis.training.network import BACKWARD, FORWARD
from ...ir.core.graph import Node
from ...ir.core.predicates import is_effect

NETWORK = (FORWARD, BACKWARD)


def phases(order: Iterable[Node], parts: Mapping[Node, str]) -> dict[Node, int]:
    """The longest chain of updates before each node, by operands and tokens. ``order``: the nodes, operands first; what
    the network itself writes, such as statistics, is no update. Linear in nodes and operands."""
    found: dict[Node, int] = {}
    for node in order:
        before = max((found[v] for v in node._operands if isinstance(v, Node)), default=0)
        found[node] = before + (parts.get(node) not in NETWORK and is_effect(node))
    return found
