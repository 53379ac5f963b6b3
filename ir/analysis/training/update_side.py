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

from ...core.graph import Graph, Input, Node, State, Value
from ...core.op import CALL
from ...core.walk import carried_operands, walk
from ..functions.calls import called_functions
from .interpretation import Interpretation, Term
from .network import BACKWARD, FORWARD, OPTIMIZER


@dataclass(frozen=True)
class UpdateSide:
    """``parts``: forward, backward and update side. ``versions``: what the update side leaves in each state, by name.
    ``read``: names of the states that forward or backward reads, be it through copies or casts that carry no mark."""

    graph: Graph
    parts: dict[Node, str]
    done: Interpretation
    versions: dict[str, list[Term]]
    read: set[str]


def update_side(
    graph: Graph, parts: dict[Node, str], bound: Mapping[Input, Sequence[Value]], done: Interpretation
) -> UpdateSide:
    """The update side that was interpreted; ``parts`` gets its nodes. Linear in nodes."""
    read = _read(parts, bound)
    for node in _needed_by(graph, parts, [write.node for write in done.writes]):
        parts[node] = OPTIMIZER
    return UpdateSide(graph, parts, done, done.versions(), read)


def nodes_of(versions: Iterable[Term]) -> list[Node]:
    """The nodes that leave these versions."""
    return list(dict.fromkeys(v.value for v in versions if isinstance(v.value, Node)))


def _needed_by(graph: Graph, parts: Mapping[Node, str], updates: Iterable[Node]) -> list[Node]:
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

    return list(walk(updates, following))


def _read(parts: Mapping[Node, str], bound: Mapping[Input, Sequence[Value]]) -> set[str]:
    network = {n for n, part in parts.items() if part in (FORWARD, BACKWARD)}
    starts: list[Value] = [n for n in network if not network.issuperset(n._operands)]

    def following(value: Value) -> Iterable[Value]:
        behind = bound.get(value, ()) if isinstance(value, Input) else carried_operands(value)
        return [v for v in behind if v not in network]

    return {value.name for value in walk(starts, following) if isinstance(value, State)}
