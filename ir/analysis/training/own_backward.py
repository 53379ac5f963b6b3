"""The backward of cells that have one of their own (``bprop``): autodiff takes it as it is, and marks none of it.

Such a cell computes forward values, and no derivative that autodiff made stands in it. What it makes of a derivative is
backward. Where it is the last one, such as a loss, nothing marked follows from what it computes of forward values. For
example, the last cell on the way of the derivative to a weight::

    state %s: float32[]
    graph @step(%x: float32[2]) {
      %s0 = Load(%s, umonad) : float32[] scope("Default/net-N/q-Q/Load-op0") primal {unique_id = "1"}
      %y = Mul(%x, %s0) : float32[2] scope("Default/net-N/q-Q/Mul-op0")
      %loss = SumExt(%y, none, false, none) : float32[] scope("Default/net-N/SumExt-op0") primal {unique_id = "2"}
      %d = OnesLike(%y) : float32[2] scope("Gradients/Default/net-N/Grad_SumExt/OnesLike-op0")
      %dy = Mul(%d, %y) : float32[2] scope("Default/net-N/q-Q/Mul-op1")                        // backward
      %g = SumExt(%dy, none, false, none) : float32[] scope("Default/net-N/q-Q/SumExt-op1")    // backward
      %new = AssignSub(%s, %g, umonad) : float32[] scope("Default/AssignSub-op0")
      %t = UpdateState(umonad, %new)
      %result = Depend(%loss, %t)
      return %result
    }
"""

from __future__ import annotations

from ...core.graph import Graph, Node
from ...core.op import CALL
from ...core.predicates import is_effect, written_operands
from ...core.types import is_monad
from .cells import DERIVATIVES, NETWORK, cell_of, outwards

FORWARD, BACKWARD = NETWORK


def adopt_own_backward(graph: Graph, parts: dict[Node, str]) -> None:
    """Adds to ``parts``, the marked nodes and those that follow from them, what such cells compute besides. Linear in
    nodes."""
    forward = {cell_of(node) for node, part in parts.items() if part == FORWARD}
    network = {outer for cell in forward for outer in outwards(cell)}
    derived: set[str] = set()
    behind: set[Node] = set()  # an update, by order or by value
    for node in graph.all_nodes():
        if node.scope.startswith(DERIVATIVES):
            derived.update(outwards(cell_of(node)))
        writes = node not in parts and node.op is not CALL and is_effect(node) and bool(written_operands(node))
        if writes:
            network.difference_update(outwards(cell_of(node)))
        if writes or not behind.isdisjoint(node._operands):
            behind.add(node)
    for node in graph.all_nodes():
        cell = cell_of(node)
        if node in parts or node.op.name == "UpdateState" or cell in derived or network.isdisjoint(outwards(cell)):
            continue
        if node.op.name == "Load" and node in behind:
            continue
        taken = [v for v in node._operands if isinstance(v, Node) and not is_monad(v.type)]
        if all(parts.get(v) == FORWARD for v in taken):
            parts[node] = FORWARD
        elif cell in forward and cell in network and all(v in parts for v in taken):
            parts[node] = BACKWARD
