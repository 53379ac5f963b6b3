"""The turns of a step. A cell that trains two networks against each other updates one, and takes the gradients of the
other behind that; one that looks for flat minima moves its weights, takes the gradients there, and moves back::

    AssignSub(%d, %gradient_of_d)          // the first turn
    %gradient_of_g = … Load(%d) …          // behind it: the second
    AssignSub(%g, %gradient_of_g)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence

from ...ir.analysis.effects.state_access import Effect
from ...ir.analysis.training.network import network_parts
from ...ir.analysis.training.phases import phases
from ...ir.builders.reduce import all_finite, any_true
from ...ir.core.graph import Node, Value
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.effects.outline import skip_where

Turn = tuple[list[Effect], list[Value]]
"""Updates, and the gradients that are there before them and not before an earlier turn."""


def find_turns(fx: Effects, updates: Sequence[Effect], gradients: Collection[Value]) -> list[Turn]:
    """The turns of a graph, at least one, in their order."""
    fx.graph.sort()  # what a pass has just made stands at the end
    behind = phases(fx.graph, network_parts(fx.graph))
    phase = {v: behind.get(v, 0) if isinstance(v, Node) else 0 for v in gradients}
    starts = sorted({*phase.values()})
    place = {e.node: max(1, bisect_right(starts, behind[e.node] - 1)) for e in updates}
    ends = sorted({*place.values()}) or [1]
    turns: list[Turn] = [([], []) for _ in ends]
    for effect in updates:
        turns[ends.index(place[effect.node])][0].append(effect)
    for value, at in phase.items():
        turns[min(bisect_left(ends, bisect_right(starts, at)), len(ends) - 1)][1].append(value)
    return turns


def skip_in_turn(fx: Effects, turns: Sequence[Turn], stay: Sequence[Value], *, scope: str) -> dict[Value, Value]:
    """The updates of a turn do not happen where its gradients, or those before, are not all finite: the next one is to
    meet finite weights. ``stay``: values that must not become part of an update. Returns the states that are written,
    each with a copy of what it holds before."""
    graph = fx.graph
    written = dict.fromkeys(s for updates, _ in turns for e in updates for s in sorted(e.writes, key=lambda s: s.name))
    old = {s: graph.create("TensorMove", [fx.load(s, scope=scope)], scope=scope) for s in written}
    overflows: list[Value] = []
    for updates, gradients in turns:
        if gradients:
            overflows.append(graph.create("LogicalNot", [all_finite(graph, gradients, scope=scope)], scope=scope))
        if overflows:
            overflow = any_true(graph, overflows, scope=scope)
            kept = [*stay, *overflows, *old.values()]
            skip_where(fx, overflow, updates, stay=kept, name="update", scope=scope)
    return dict(old)


def take_back(fx: Effects, condition: Value, old: Mapping[Value, Value], *, scope: str) -> None:
    """States hold again what they held, where a condition is true."""
    if old:
        for state, value in old.items():
            fx.append("Assign", [state, value], scope=scope)
        no = fx.graph.create("LogicalNot", [condition], scope=scope)
        skip_where(fx, no, fx.list[-len(old) :], stay=list(old.values()), name="take_back", scope=scope)
