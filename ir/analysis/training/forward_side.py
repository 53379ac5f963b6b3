"""Nodes of the forward part that autodiff did not mark: they stood outside the differentiated function.

A training cell may sum two losses, compute an accuracy, add the loss to a running total or keep a hidden state for
the next step, all after the gradients were taken. None of it depends on a gradient, and it happens for every batch:
that is forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...core.graph import Graph, Node, State, Value
from ...core.op import CALL
from ...core.predicates import is_effect
from ...core.primitives import facts
from ...core.types import is_monad
from ...core.walk import carried_operands, untied_operands, walk
from ..effects.state_access import Summary, describe, location
from .origins import Origins

FORWARD = "forward"


def adopt_forward(graph: Graph, parts: dict[Node, str], known: Mapping[str, Summary]) -> None:
    """Adds to ``parts``, the marked nodes: results that are computed from forward values alone, and writes of such
    values to state that the update side does not read. Linear in nodes for each round of adopted writes."""
    fed = _fed(graph)
    writers = _writers(graph, parts, known)
    cones: dict[Node, list[Node]] = {}
    for node in {n: None for nodes in writers.values() for n in nodes}:
        cone = _written_cone(node, parts, writers, fed)
        if cone is not None:
            cones[node] = cone
    settled = not cones
    while not settled:
        others = (n for nodes in writers.values() for n in nodes if n not in cones)
        needed = set(walk(others, lambda n: untied_operands(n) if n not in parts else []))
        for state, nodes in writers.items():
            own = [n for n in nodes if n in cones]
            if own and (len(own) < len(nodes) or any(u in needed for u in state.uses)):
                for node in own:
                    del cones[node]
                break
        else:
            settled = True
    for node, cone in cones.items():
        for n in (node, *cone):
            parts[n] = FORWARD
    free = {state: nodes for state, nodes in writers.items() if not all(n in cones for n in nodes)}
    for value in list(Origins(graph, parts, known=dict(known)).leaves()):
        found = _cone([value], parts, free, own=None)
        if found and any(v in fed for v in found):
            for n in found:
                parts[n] = FORWARD


def _fed(graph: Graph) -> set[Value]:
    """Values that depend on an input of the graph."""
    fed: set[Value] = {v for v in graph.inputs if not is_monad(v.type)}
    for node in graph:
        # A Depend hands on its first operand; tokens are never in the set.
        operands = node._operands[:1] if node.op.name == "Depend" else node._operands
        if node.op.name != "UpdateState" and not fed.isdisjoint(operands):
            fed.add(node)
    return fed


def _writers(graph: Graph, parts: Mapping[Node, str], known: Mapping[str, Summary]) -> dict[Value, list[Node]]:
    """The unmarked effects that write a state."""
    writers: dict[Value, list[Node]] = {}
    for node in graph:
        if node not in parts and is_effect(node):
            effect = describe(node, known)
            for state in effect.writes if effect is not None else ():
                writers.setdefault(state, []).append(node)
    return writers


def _written_cone(
    node: Node, parts: Mapping[Node, str], writers: Mapping[Value, list[Node]], fed: set[Value]
) -> list[Node] | None:
    """The unmarked nodes behind what ``node`` writes, if that comes from this batch's forward values alone."""
    if node.op is CALL or facts(node.op).gradient is not None:
        return None
    values = [v for v in node.operands if not is_monad(v.type) and location(v) is None]
    if not any(v in fed for v in values):
        return None
    return _cone(values, parts, writers, own=node)


def _cone(
    values: Iterable[Value], parts: Mapping[Node, str], writers: Mapping[Value, list[Node]], own: Node | None
) -> list[Node] | None:
    """Unmarked nodes that the values need; None if they need backward, an effect, or state that others write."""
    stack = list(values)
    cone: dict[Node, None] = {}
    while stack:
        value = stack.pop()
        if isinstance(value, State):
            return None
        if not isinstance(value, Node) or value in cone or value.op.name == "UpdateState":
            continue
        if parts.get(value) == FORWARD:
            continue
        if value in parts or is_effect(value):
            return None
        cone[value] = None
        if value.op.name == "Load":
            state = location(value.operand(0))
            if state is None or any(n is not own for n in writers.get(state, ())):
                return None
        else:
            stack.extend(carried_operands(value))
    return list(cone)
