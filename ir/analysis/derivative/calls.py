"""Calls of functions that a loop made, which are linear in operands: the way of the derivative back through a loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...core.errors import AnatomyError
from ...core.graph import Graph, Node
from ...core.predicates import is_float_tensor
from ...core.walk import walk
from .linearity import demand_of


@dataclass(frozen=True)
class LinearCall:
    """The elements ``items`` of a call's result are multiplied by s if the ``operands`` all are."""

    operands: frozenset[int]
    items: frozenset[int]


def linear_calls(graph: Graph, parts: Mapping[Node, str], calls: Iterable[Node]) -> dict[Node, LinearCall]:
    """Those of the calls that are linear, by the analysis of :mod:`.linearity`, which each is asked of by itself."""
    found = {}
    for call in calls:
        if call.graph is not graph:
            continue
        items = [user for user in call.users if user.op.name == "TupleGetItem" and is_float_tensor(user)]
        wanted = [use for item in items for use in item.use_sites()]
        try:
            demand = demand_of(graph, parts, wanted)
        except AnatomyError:
            continue
        behind = set(walk([call], lambda v: [u for u in v.operands if isinstance(u, Node)]))
        if any(user not in behind for uses in demand.places().values() for user, _ in uses):
            continue  # something that does not go through the call would have to be multiplied too
        operands = frozenset(i for user, i, _ in demand.uses if user is call)
        indices = frozenset(path[0] for value, path in demand.multiplied if value is call and path)
        if operands and indices:
            found[call] = LinearCall(operands, indices)
    return found
