"""The uses of each state in the forward part: the primitives that take it, behind all that only brings it there."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.graph import Graph, Node, Value
from ...core.op import CALL
from ...core.primitives import Family, named
from ...core.types import is_monad
from ...core.walk import walk
from ..functions.calls import bindings
from .network import BACKWARD, FORWARD, network_parts

BRINGING = named(Family.COPY, Family.CAST, Family.RESHAPE, Family.TRANSPOSE) | {"Load", "Depend", "MakeTuple"}
"""Ops that change neither what a weight is nor how its elements belong together."""

Use = tuple[Node, int]


def forward_uses(graph: Graph) -> dict[str, list[Use]]:
    """The (node, operand index) of the forward part that take each state, by its name, also inside functions that it is
    passed to. Empty for a graph without a forward part. Linear in nodes, and in the uses of each state."""
    parts = network_parts(graph)
    if FORWARD not in parts.values():
        return {}
    formals: dict[Value, list[Value]] = {}
    for formal, actuals in bindings(graph).items():
        for actual in actuals:
            formals.setdefault(actual, []).append(formal)
    found: dict[str, list[Use]] = {}

    def brought(value: Value) -> list[Value]:
        bringing = [
            user
            for user, i in value.use_sites()
            if user.op.name in BRINGING and parts.get(user) != BACKWARD
            if not is_monad(user.type) and not (user.op.name == "Depend" and i == 1)
        ]
        return [*formals.get(value, ()), *bringing]

    passing = BRINGING | {CALL.name, "Partial", "Switch"}
    states: Mapping[str, Value] = graph.states
    for name, state in states.items():
        uses = (use for value in walk([state], brought) for use in value.use_sites())
        found[name] = [(user, i) for user, i in uses if parts.get(user) == FORWARD and user.op.name not in passing]
    return found
