"""What a training cell does to its weights besides the optimizer's update: it clips them (WGAN), keeps them on a
sphere, takes them back to slower ones (Lookahead).

Such a write takes no gradient of this step, neither from the backward part nor from a slot that one moved. For
example, ``%bounded``::

    state %w: float32[2]
    graph @step(%x: float32[2]) {
      %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
      %y = Mul(%w0, %x) : float32[2] primal {unique_id = "2"}
      %g = Mul(%x, %x) : float32[2] primal {forward_unique_id = "2"}
      %new = AssignSub(%w, %g, umonad) : float32[2]                      // the optimizer's
      %t = UpdateState(umonad, %new)
      %w1 = Load(%w, %t) : float32[2]
      %least = Minimum(%w1, float32[]<0.5>) : float32[2]
      %bounded = Assign(%w, %least, %t) : float32[2]                     // the cell's own
      %t1 = UpdateState(%t, %bounded)
      %result = Depend(%y, %t1)
      return %result
    }
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...core.graph import Graph, Input, Node, State, Value
from ...core.op import CALL
from ...core.predicates import is_effect
from ...core.walk import carried_operands, walk
from ..effects.state_access import Effect, Summary, describe, states_behind, summarize
from ..functions.calls import bindings
from .anatomy import TrainingAnatomy, anatomy
from .gradient_path import is_fed, weights_of
from .network import BACKWARD, FORWARD, network_parts


def own_writes(graph: Graph, found: TrainingAnatomy | None = None) -> dict[Node, str]:
    """The writes of trained weights that take no gradient, each with its weight, of weights that another write updates,
    in the graph and its functions. ``graph`` takes its gradients from its backward part or from accumulators;
    ``found``: its anatomy, if at hand. Linear in nodes for each kind of slot that moves another."""
    if found is None and is_fed(graph):
        side = _Side(graph, network_parts(graph), bindings(graph), summarize(graph))
        names = {name for node in graph for name in weights_of(node)}
        written: dict[str, Sequence[Node]] = side.writes_of(names)
    else:
        found = anatomy(graph) if found is None else found
        side = _Side(graph, found.parts, found.bound, found.known)
        names = {name for info in found.weights for name in (info.name, *info.copies)}
        written = {info.name: info.updates for info in found.weights}
    several = {name: nodes for name, nodes in written.items() if len(nodes) > 1}
    if not several:
        return {}
    moved = side.moved(names)
    own: dict[Node, str] = {}
    for name, updates in several.items():
        without = [node for node in updates if not side.takes_gradient(node, moved)]
        if len(without) < len(updates):
            own.update(dict.fromkeys(without, name))
    return own


def leading_writes(effects: Sequence[Effect], parts: Mapping[Node, str]) -> list[Effect]:
    """Of a graph's ``effects``, in order: the writes of the update side that stand in front of what the network reads
    of these states, and take no gradient: a key encoder that follows the weights, a step count."""
    read: set[Value] = set()
    before_network: set[Effect] = set()
    for effect in reversed(effects):
        if parts.get(effect.node) in (FORWARD, BACKWARD):
            read |= effect.touched
        elif not effect.passive and not effect.writes.isdisjoint(read):
            before_network.add(effect)
    first: list[Effect] = []
    written: set[Value] = set()
    for effect in effects if before_network else ():
        if effect in before_network and written.isdisjoint(effect.touched):
            behind = list(walk([v for v in effect.node.operands if v not in effect.writes], carried_operands))
            nodes = [v for v in behind if isinstance(v, Node)]
            made = any(parts.get(n) == BACKWARD or is_effect(n) or n.op is CALL for n in nodes)
            if effect.node.op is not CALL and not made and written.isdisjoint(behind):
                first.append(effect)
                continue
        if not effect.passive and parts.get(effect.node) != FORWARD:
            written |= effect.writes
    return first


@dataclass(frozen=True, slots=True)
class _Side:
    """The update side of a graph."""

    graph: Graph
    parts: Mapping[Node, str]
    bound: Mapping[Input, Sequence[Value]]
    known: dict[str, Summary]

    def _effects(self) -> Iterator[tuple[Node, set[str]]]:
        """The nodes that write state, with its names."""
        for node in self.graph.all_nodes():
            if self.parts.get(node) in (FORWARD, BACKWARD):
                continue
            effect = describe(node, self.known)
            if effect is not None and effect.writes:
                yield node, {s.name for v in effect.writes for s in states_behind(v, self.bound)}

    def writes_of(self, names: Collection[str]) -> dict[str, Sequence[Node]]:
        found: dict[str, list[Node]] = {name: [] for name in names}
        for node, written in self._effects():
            for name in written & found.keys():
                found[name].append(node)
        return dict(found)

    def moved(self, no_slots: Collection[str]) -> set[str]:
        """The states, besides weights and what the network reads, into which this step puts something of a
        gradient."""
        writes = [(node, names.difference(no_slots)) for node, names in self._effects()]
        moved: set[str] = set()
        while True:
            rest = []
            for node, names in writes:
                if names and self.takes_gradient(node, moved):
                    moved |= names
                else:
                    rest.append((node, names))
            if len(rest) == len(writes):
                return moved
            writes = rest

    def takes_gradient(self, write: Node, moved: Collection[str]) -> bool:
        """What a call does, or an input of a function that nobody is seen to call, may take one."""
        if write.op is CALL:
            return True

        def following(value: Value) -> Iterable[Value]:
            if isinstance(value, Input):
                return self.bound.get(value, ())
            if not isinstance(value, Node) or self.parts.get(value) in (FORWARD, BACKWARD):
                return ()
            return carried_operands(value)

        def gives(value: Value) -> bool:
            if isinstance(value, State):
                return value.name in moved
            if isinstance(value, Input):
                return value not in self.bound and value not in self.graph.inputs
            if not isinstance(value, Node):
                return False
            return self.parts.get(value) == BACKWARD or value.op is CALL or bool(weights_of(value))

        return any(gives(v) for v in walk(carried_operands(write), following))
