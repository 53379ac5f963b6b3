"""The check for overflows that a training cell brings itself: `if not overflow: self.optimizer(grads)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.analysis.effects.state_access import Effect, summarize
from ...ir.analysis.functions.calls import bindings
from ...ir.analysis.training.finiteness import gradients_behind
from ...ir.analysis.training.results import TESTING, skips_writes
from ...ir.analysis.training.stages import GradientPath
from ...ir.builders.reduce import all_finite, any_true
from ...ir.core.graph import Graph, Node, Value, rewire, tensor_type
from ...ir.core.op import CALL
from ...ir.core.predicates import is_float_tensor
from ...ir.core.primitives import Family, named
from ...ir.core.walk import live_nodes, unpacked

_TRUE_ON_OVERFLOW = named(Family.OVERFLOWED)


@dataclass(frozen=True, slots=True)
class OwnCheck:
    """``nodes`` ask whether gradients overflow; each of ``conditions`` decides about an update, which is left out where
    it has the given value."""

    nodes: list[Node]
    conditions: list[tuple[Value, bool]]


def find_own_check(graph: Graph, effects: Sequence[Effect]) -> OwnCheck | None:
    """The check by which the file itself decides whether effects happen; None where it brings none."""
    known = summarize(graph)
    decisions: dict[Value, bool] = {}
    for effect in effects:
        switch = effect.node.operand(0) if effect.node.op is CALL else None
        if isinstance(switch, Node) and (skipping := skips_writes(switch, known)) is not None:
            decisions[switch.operand(0)] = skipping
    nodes: dict[Node, None] = {}
    conditions: list[tuple[Value, bool]] = []
    for condition, skipping in decisions.items():
        asked = live_nodes([condition])
        asking = [n for n in graph if n in asked and n.op.name in TESTING]
        if asking:
            nodes.update(dict.fromkeys(asking))
            conditions.append((condition, skipping))
    return OwnCheck(list(nodes), conditions) if conditions else None


def skips(graph: Graph, own: OwnCheck, *, scope: str) -> Value:
    """A scalar bool: whether the check leaves an update out."""
    flags: dict[Value, None] = {}
    for condition, skipping in own.conditions:
        if skipping:
            flags[condition] = None
        elif isinstance(condition, Node) and condition.op.name == "LogicalNot":
            flags[condition.operand(0)] = None
        else:
            flags[graph.create("LogicalNot", [condition], scope=scope)] = None
    return any_true(graph, flags, scope=scope)


def look_at_all(graph: Graph, own: OwnCheck, paths: Sequence[GradientPath], *, scope: str) -> set[str]:
    """Makes the check see the gradients that it does not: those that it never asks for, and those that are clipped by
    value before it asks. Whatever follows from the check (another loss scale, a result) then follows from these too.

    Returns the weights whose gradients it still does not see, for the kind of its test.
    """
    starts = {v: path.weight for path in paths for v in path.points[0].values if isinstance(v, Node)}
    bound = bindings(graph)
    seen: set[Node] = set()
    for node in own.nodes:
        for tensor in filter(is_float_tensor, unpacked(node.operands)):
            seen |= gradients_behind(tensor, starts, bound)
    unseen = [p for p in paths if not all(v in seen for v in p.points[0].values)]
    if not unseen:
        return set()
    asking = [n for n in own.nodes if n.op.name == "IsFinite" or n.op.name in _TRUE_ON_OVERFLOW]
    if not asking:
        return {path.weight for path in unseen}
    place = min(asking, key=lambda n: tensor_type(n).size)
    uses = list(place.use_sites())
    values = dict.fromkeys(v for path in unseen for v in path.at("finite-check", graph).values)
    answer = all_finite(graph, list(values), scope=scope)
    joined = "LogicalAnd"
    if place.op.name in _TRUE_ON_OVERFLOW:
        answer = graph.create("LogicalNot", [answer], scope=scope)
        joined = "LogicalOr"
    agreed = graph.create(joined, [place, answer], scope=scope, sources=[place])
    rewire(uses, agreed)
    graph.sort()
    return set()
