"""The forward part behind a loss: what each of its nodes depends on."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...core.graph import Graph, Node, Value
from ...core.types import TensorType
from ...core.walk import carried_operands, walk


class Forward:
    """``order``: the nodes that ``loss`` is computed from, in the order of the graph."""

    def __init__(self, graph: Graph, loss: Value, weights: Collection[str]):
        needed = ancestors([loss])
        self.graph = graph
        self.order = [n for n in graph if n in needed]
        self.fed: dict[Value, int] = {value: 1 << i for i, value in enumerate(graph.inputs)}
        """The inputs that a value depends on, a bit for each."""
        self.weighted: set[Value] = {s for name, s in graph.states.items() if name in weights}
        for node in self.order:
            operands = carried_operands(node)
            fed = self.fed_by(operands)
            if fed:
                self.fed[node] = fed
            if any(v in self.weighted for v in operands):
                self.weighted.add(node)

    def fed_by(self, values: Iterable[Value]) -> int:
        """The inputs that any of the values depends on."""
        fed = 0
        for value in values:
            fed |= self.fed.get(value, 0)
        return fed

    def names(self, fed: int) -> tuple[str, ...]:
        """The inputs of these bits."""
        return tuple(value.name for i, value in enumerate(self.graph.inputs) if fed & 1 << i)

    def bit(self, name: str | None) -> int:
        """The bit of an input; 0 where there is none of that name."""
        return next((1 << i for i, value in enumerate(self.graph.inputs) if value.name == name), 0)

    def predicts(self, value: Value) -> bool:
        """Whether a value is computed from data and weights, and is no single number."""
        return value in self.fed and value in self.weighted and not is_number(value)

    def is_layer(self, node: Node) -> bool:
        """Whether data meets a weight here. A penalty on weights meets the loss, which is a single number."""
        if node not in self.fed or is_number(node):
            return False
        return any(v in self.weighted and v not in self.fed for v in carried_operands(node))


def is_number(value: Value) -> bool:
    """Whether a value is a single number."""
    return isinstance(value.type, TensorType) and value.type.shape == ()


def ancestors(values: Iterable[Value]) -> set[Value]:
    """The values and what they are computed from, order left aside."""
    return set(walk(values, carried_operands))


def cell(node: Value) -> str:
    """The cell that a node stands in; a scope's last part is the operation itself."""
    return node.scope.rpartition("/")[0] if isinstance(node, Node) else ""
