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

from collections.abc import Collection, Iterator

from ...core.graph import Node, State, Value
from ...core.op import CALL
from ...core.walk import carried_operands, walk
from ..effects.state_access import describe, states_behind
from .anatomy import TrainingAnatomy
from .network import BACKWARD, FORWARD


def own_writes(found: TrainingAnatomy) -> dict[Node, str]:
    """The writes of trained weights that take no gradient, each with its weight, of weights that another write updates.
    What stands in a function counts as the optimizer's. Linear in nodes for each kind of slot that moves another."""
    several = {info.name: info.updates for info in found.weights if len(info.updates) > 1}
    if not several:
        return {}
    moved = _moved(found)
    own: dict[Node, str] = {}
    for name, updates in several.items():
        without = [node for node in updates if not _takes_gradient(found, node, moved)]
        if len(without) < len(updates):
            own.update(dict.fromkeys(without, name))
    return own


def _moved(found: TrainingAnatomy) -> set[str]:
    """The states, besides weights and what the network reads, into which this step puts something of a gradient."""
    no_slots = {name for info in found.weights for name in (info.name, *info.copies)}
    writes: list[tuple[Node, set[str]]] = []
    for node in found.graph.all_nodes():
        effect = (
            None if node in found.parts and found.part(node) in (FORWARD, BACKWARD) else describe(node, found.known)
        )
        if effect is not None and effect.writes:
            names = {s.name for v in effect.writes for s in states_behind(v, found.bound)} - no_slots
            if names:
                writes.append((node, names))
    moved: set[str] = set()
    while True:
        rest = []
        for node, names in writes:
            if _takes_gradient(found, node, moved):
                moved |= names
            else:
                rest.append((node, names))
        if len(rest) == len(writes):
            return moved
        writes = rest


def _takes_gradient(found: TrainingAnatomy, write: Node, moved: Collection[str]) -> bool:
    if write.graph is not found.graph or write.op is CALL:
        return True

    def following(value: Value) -> Iterator[Value]:
        if isinstance(value, Node) and found.part(value) not in (FORWARD, BACKWARD):
            yield from carried_operands(value)

    def gives(value: Value) -> bool:
        if isinstance(value, State):
            return value.name in moved
        return isinstance(value, Node) and (found.part(value) == BACKWARD or value.op is CALL)

    return any(gives(v) for v in walk(carried_operands(write), following))
