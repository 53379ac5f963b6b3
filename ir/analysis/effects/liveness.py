"""What the result of a graph needs."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.graph import Graph, Node, Value


def without_order(value: Value) -> Value:
    """A value without the Depends that only keep effects alive."""
    while isinstance(value, Node) and value.op.name == "Depend":
        value = value.operand(0)
    return value


def result_value(graph: Graph) -> Value:
    """What a graph computes: its result without the Depends that only keep effects alive."""
    return without_order(graph.result)


def live_nodes(roots: Iterable[Value]) -> set[Node]:
    """Nodes that the roots need, themselves included; one sweep."""
    live: set[Node] = set()
    stack = [v for v in roots if isinstance(v, Node)]
    live.update(stack)
    while stack:
        for operand in stack.pop()._operands:
            if isinstance(operand, Node) and operand not in live:
                live.add(operand)
                stack.append(operand)
    return live
