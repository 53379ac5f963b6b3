"""What updates of weights follow from: a cell may compute other things of its gradients, such as a norm to return.

For example, the update follows from ``%g`` and ``%m1`` here, and so from ``%kept`` and ``%m0``, not from ``%norm``::

    state %w: float32[2]
    state %m: float32[2]
    graph @step(%x: float32[2]) {
      %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
      %y = Mul(%w0, %x) : float32[2] primal {unique_id = "2"}
      %g = Mul(%x, %x) : float32[2] primal {forward_unique_id = "2"}
      %norm = L2Loss(%g) : float32[]                                     // beside the update
      %m0 = Load(%m, umonad) : float32[2]
      %sum = Add(%m0, %g) : float32[2]                                   // followed by it
      %kept = Assign(%m, %sum, umonad) : float32[2]
      %t0 = UpdateState(umonad, %kept)
      %m1 = Load(%m, %t0) : float32[2]
      %new = AssignSub(%w, %m1, %t0) : float32[2]
      %t = UpdateState(%t0, %new, %y)
      %result = Depend(%norm, %t)
      return %result
    }
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...core.graph import Graph, GraphRef, Input, Node, State, Value
from ...core.predicates import is_effect, written_operands
from ...core.walk import carried_operands, result_value, walk
from ..effects.state_access import states_behind
from .network import BACKWARD, FORWARD


def updating_values(
    graph: Graph, parts: Mapping[Node, str], bound: Mapping[Input, Sequence[Value]], weights: Collection[str]
) -> set[Value]:
    """All on the update side that the updates of ``weights`` are computed from, by way of other state too, and all that
    a Switch decides by. ``parts`` and ``bound`` as for :class:`.gradient_users.GradientUsers`. Linear in nodes."""
    writers: dict[str, list[Node]] = {}
    decided: list[Node] = []
    for node in graph.all_nodes():
        if node.op.name == "Switch":
            decided.append(node)
        if is_effect(node):
            for i in written_operands(node):
                for state in states_behind(node.operand(i), bound):
                    writers.setdefault(state.name, []).append(node)

    def above(value: Value) -> Sequence[Value]:
        if isinstance(value, State):
            return writers.get(value.name, ())
        if isinstance(value, Input):
            return bound.get(value, ())
        if isinstance(value, GraphRef):
            return [result_value(value.graph)]
        network = isinstance(value, Node) and parts.get(value) in (FORWARD, BACKWARD)
        return () if network else carried_operands(value)

    updates: list[Value] = [node for weight in weights for node in writers.get(weight, ())]
    return set(walk([*updates, *decided], above))
