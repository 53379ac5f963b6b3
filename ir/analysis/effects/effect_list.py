"""The effects of a graph as a list, in the order in which they happen.

For example::

    %old = Load(%w, %u)                 reads w, passive
    %new = Assign(%w, %x, %u)           writes w
    %t = UpdateState(%u, %new)
    %shown = Load(%w, %t)               reads w after the write, passive
    return Depend(%shown, %t)           the Depends at the end only keep effects alive

has the list ``%old, %new, %shown``. An :class:`EffectList` says how a graph was when it was made: who needs it for a
graph and for its clones makes it once (:attr:`TrainingAnatomy.effects`) and carries it over with :meth:`of_clone`;
who changes effects edits a copy (:mod:`ir.rewrite.effects.editing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from ...core.graph import Graph, Node, Value
from ...core.predicates import may_act
from ...core.walk import needed_nodes
from .state_access import Effect, Summary, describe, summarize


@dataclass(frozen=True, eq=False)
class EffectList:
    """``place``: where each live node stood among these. ``known``: what the functions do
    (:func:`.state_access.summarize`)."""

    graph: Graph
    effects: tuple[Effect, ...]
    place: Mapping[Node, int]
    known: dict[str, Summary]

    def writes(self) -> list[Effect]:
        """The effects that are not mere reads, in order."""
        return [e for e in self.effects if not e.passive]

    def of_clone(self, clone: Graph, twin: Mapping[Value, Value]) -> EffectList:
        """The same list for a clone of the unchanged graph, as far as that goes; ``twin`` as :meth:`Graph.clone` gives
        it."""
        there = {node: copy for node in self.place if isinstance(copy := twin.get(node), Node) and copy.graph is clone}
        effects = tuple([e.moved(twin) for e in self.effects if e.node in there])
        place = {copy: self.place[node] for node, copy in there.items()}
        return EffectList(clone, effects, place, self.known)


def written_states(graph: Graph) -> set[str]:
    """The names of the states that a graph writes."""
    return {state.name for effect in list_effects(graph).effects for state in effect.writes}


def list_effects(graph: Graph, known: dict[str, Summary] | None = None) -> EffectList:
    """The effects that the result of ``graph`` needs, by the number of tokens before them, then by place. ``known``:
    :func:`summarize` of the main graph, for who works on all of its functions. Linear in nodes."""
    known = summarize(graph.owner or graph) if known is None else known
    tail: set[Node] = set()
    value = graph.result
    while isinstance(value, Node) and value.op.name == "Depend":
        tail.add(value)
        value = value.operand(0)
    nodes = needed_nodes(graph)
    tokens: dict[Value, int] = {}  # what has no token before it stands for zero
    effects: list[Effect] = []
    before_it = tokens.get
    for node in nodes:
        before = 0
        for operand in node._operands if tokens else ():
            if (at := before_it(operand, 0)) > before:
                before = at
        if not may_act(node):
            if before:
                tokens[node] = before
        elif node.op.name == "UpdateState":
            tokens[node] = before + 1
        else:
            if before:
                tokens[node] = before
            if node not in tail and (effect := describe(node, known)) is not None:
                effects.append(effect)
    effects.sort(key=lambda e: tokens.get(e.node, 0))  # stable: by place where the tokens are as many
    return EffectList(graph, tuple(effects), dict(zip(nodes, count())), known)
