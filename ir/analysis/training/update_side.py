"""The update side of a training graph: which nodes write state outside of forward and backward, and all that they need.

For example, with forward nodes marked ``unique_id`` and backward nodes ``forward_unique_id``::

    state %w: float32[2]
    graph @step(%x: float32[2]) {
      %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
      %y = Mul(%w0, %x) : float32[2] primal {unique_id = "2"}
      %g = Mul(%x, %x) : float32[2] primal {forward_unique_id = "2"}
      %half = Mul(%g, float32[]<0.5>) : float32[2]                       // update side
      %new = AssignSub(%w, %half, umonad) : float32[2]                   // update side, writes w
      %t = UpdateState(umonad, %new)
      %result = Depend(%y, %t)                                           // order
      return %result
    }
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...core.graph import Graph, Input, Node, State, Value
from ...core.op import CALL
from ...core.predicates import is_effect
from ...core.walk import carried_operands, walk
from ..effects.state_access import Effect, Summary, describe, states_behind
from ..functions.calls import called_functions
from .network import BACKWARD, FORWARD, OPTIMIZER


@dataclass(frozen=True)
class UpdateSide:
    """``parts``: forward, backward and update side. ``bound``: what function inputs stand for. ``written``: the nodes
    of the update side that write a state, by its name. ``read``: names of the states that forward or backward reads,
    be it through copies or casts that carry no mark."""

    graph: Graph
    parts: dict[Node, str]
    bound: Mapping[Input, Sequence[Value]]
    written: dict[str, list[Node]]
    read: set[str]

    @cached_property
    def depth(self) -> Mapping[Value, int]:
        """How many tokens stand before a node: a write precedes a Load of the same state if its depth is less."""
        return _depths(self.graph)


def find_updates(graph: Graph, parts: Mapping[Node, str], known: dict[str, Summary]) -> list[Effect]:
    """In-place writes that are part of neither forward nor backward, in main graph and functions."""
    found = []
    for node in graph.all_nodes():
        if node not in parts and node.op is not CALL and is_effect(node):
            effect = describe(node, known)
            if effect is not None and effect.writes:
                found.append(effect)
    return found


def update_side(
    graph: Graph, parts: dict[Node, str], bound: Mapping[Input, Sequence[Value]], updates: Sequence[Effect]
) -> UpdateSide:
    """The update side around the writes that :func:`find_updates` found; ``parts`` gets its nodes. Linear in nodes."""
    for node in _needed_by(graph, parts, updates):
        parts[node] = OPTIMIZER
    return UpdateSide(graph, parts, bound, _written(bound, updates), _read(parts, bound))


def _needed_by(graph: Graph, parts: Mapping[Node, str], updates: Sequence[Effect]) -> list[Node]:
    """Everything unmarked that an update needs belongs to the update side, and calls that lead to updates."""
    callers: dict[str, list[Node]] = {}
    for node in graph.all_nodes():
        if node.op is CALL:
            for function in called_functions(node):
                callers.setdefault(function.name, []).append(node)

    def following(node: Node) -> list[Node]:
        needed = list(node._operands)
        if callers and node.graph is not None:
            needed.extend(callers.get(node.graph.name, ()))
        if node.op is CALL:
            needed.extend(f.result for f in called_functions(node) if f.has_result)
        return [v for v in needed if isinstance(v, Node) and v not in parts and v.op.name != "UpdateState"]

    return list(walk([e.node for e in updates], following))


def _written(bound: Mapping[Input, Sequence[Value]], updates: Sequence[Effect]) -> dict[str, list[Node]]:
    written: dict[str, list[Node]] = {}
    for effect in updates:
        for value in sorted(effect.writes, key=lambda v: v.name):
            for state in states_behind(value, bound):
                nodes = written.setdefault(state.name, [])
                if not nodes or nodes[-1] is not effect.node:
                    nodes.append(effect.node)
    return written


def _depths(graph: Graph) -> dict[Value, int]:
    depth: dict[Value, int] = {}
    for node in graph.all_nodes():
        before = max((depth[v] for v in node._operands if v in depth), default=0)
        depth[node] = before + (node.op.name == "UpdateState")
    return depth


def _read(parts: Mapping[Node, str], bound: Mapping[Input, Sequence[Value]]) -> set[str]:
    network = {n for n, part in parts.items() if part in (FORWARD, BACKWARD)}
    starts: list[Value] = [n for n in network if not network.issuperset(n._operands)]

    def following(value: Value) -> Iterable[Value]:
        behind = bound.get(value, ()) if isinstance(value, Input) else carried_operands(value)
        return [v for v in behind if v not in network]

    return {value.name for value in walk(starts, following) if isinstance(value, State)}
