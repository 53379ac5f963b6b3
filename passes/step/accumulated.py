"""The summands of a graph's accumulators: the gradients of a micro-batch, weighted or left out as it may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...ir.analysis.effects.state_access import state_behind
from ...ir.analysis.training.network import BACKWARD
from ...ir.core.graph import Graph, Node, Value
from ...ir.core.names import GRADIENT, STAGE
from ...ir.core.walk import walk


def added_terms(graph: Graph) -> Iterator[tuple[str, Value]]:
    """Each state that the graph adds to over a cycle, and what it adds: in place, or on the fly (``split=fused``)."""
    for node in adding_nodes(graph):
        state = state_behind(node.operand(0))
        if state is not None:
            yield state.name, node.operand(1)


def adding_nodes(graph: Graph) -> list[Node]:
    """The nodes that add something of a micro-batch, their second operand, to a sum over the cycle."""
    return [n for n in graph if n.marks.get(STAGE) == "accumulate" and n.op.name in ("Add", "AssignAdd")]


def gradients_in(term: Value, parts: Mapping[Node, str]) -> list[Node]:
    """The gradients that a term is made of: values of the backward part, or what stands for them after a cut."""

    def is_gradient(value: Value) -> bool:
        return isinstance(value, Node) and (parts.get(value) == BACKWARD or GRADIENT in value.marks)

    def made_of(value: Value) -> Sequence[Value]:
        if not isinstance(value, Node) or is_gradient(value):
            return ()
        if value.op.name == "Select":  # a micro-batch that weighs nothing, or has overflowed, adds zeros
            return value.operands[1:3]
        return value.operands[:1] if value.op.name in ("Cast", "Mul") else ()

    return [value for value in walk([term], made_of) if isinstance(value, Node) and is_gradient(value)]
