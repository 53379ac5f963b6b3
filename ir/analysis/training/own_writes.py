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

from collections.abc import Collection, Mapping, Sequence

from ...core.graph import Graph, Node, Value
from ...core.op import CALL
from ...core.predicates import is_effect
from ...core.walk import carried_operands, walk
from ..effects.state_access import Effect
from .anatomy import TrainingAnatomy, anatomy
from .gradient_path import is_fed, weights_of
from .interpretation import CHOICE, OPERATION, Term, interpret
from .network import BACKWARD, FORWARD, network_parts
from .update_side import nodes_of


def own_writes(graph: Graph, found: TrainingAnatomy | None = None) -> dict[Node, str]:
    """The writes of trained weights that take no gradient, each with its weight, of weights that another write updates,
    in the graph and its functions. ``graph`` takes its gradients from its backward part or from accumulators;
    ``found``: its anatomy, if at hand. Linear in nodes for each kind of slot that moves another."""
    if found is None and is_fed(graph):
        parts: Mapping[Node, str] = network_parts(graph)
        done = interpret(graph, parts)
        trained = weights = {name for node in graph for name in weights_of(node)}
    else:
        found = anatomy(graph) if found is None else found
        parts, done = found.parts, found.side.done
        trained = {info.name for info in found.weights}
        weights = {name for info in found.weights for name in (info.name, *info.copies)}
    versions = done.versions()
    several = {name: left for name in trained if len(nodes_of(left := versions.get(name, ()))) > 1}
    moved = _moved(versions, weights, parts) if several else set()
    own: dict[Node, str] = {}
    for name, left in several.items():
        updates = nodes_of(version for version in left if _takes_gradient(version, weights, moved, parts))
        if updates:
            own.update({node: name for node in nodes_of(left) if node not in updates})
    return own


def _moved(versions: Mapping[str, Sequence[Term]], weights: Collection[str], parts: Mapping[Node, str]) -> set[str]:
    """The states, besides weights and their copies, into which this step puts something of a gradient."""
    moved: set[str] = set()
    while True:
        rest = [name for name in versions if name not in weights and name not in moved]
        new = {n for n in rest if any(_takes_gradient(v, weights, moved, parts) for v in versions[n])}
        if not new:
            return moved
        moved |= new


def _takes_gradient(version: Term, weights: Collection[str], moved: Collection[str], parts: Mapping[Node, str]) -> bool:
    """Whether an effect takes a gradient of this step, or state that one has moved; not by way of a weight."""

    def above(term: Term) -> Sequence[Term]:
        kept = term.state is not None and term.state.name in weights
        return () if kept else term.operands[1:] if term.kind == CHOICE else term.operands

    def gives(term: Term) -> bool:
        if term.state is not None:
            return term.state.name in moved
        unknown = term.kind == OPERATION and term.name == "call"
        node = term.value
        return unknown or (isinstance(node, Node) and (parts.get(node) == BACKWARD or bool(weights_of(node))))

    return any(map(gives, walk(version.operands, above)))


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
