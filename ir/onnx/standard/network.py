"""Which value of a training graph is what its network computes: what the loss is taken of."""

from __future__ import annotations

from dataclasses import dataclass

from ...effects import result_value
from ...errors import PassError
from ...forward_side import carried_operands
from ...graph import Graph
from ...network import BACKWARD, network_parts, passed_on
from ...program import Program
from ...values import Node, State, Value


@dataclass(frozen=True)
class Network:
    """``results`` by name, in ``graph``; ``is_whole``: nothing was left out, since there is no backward part."""

    graph: Graph
    results: dict[str, Value]
    is_whole: bool


def network_of(program: Program, node: str | None = None) -> Network:
    """The forward part up to the value that the loss is taken of, or up to the named ``node``.

    A graph without a backward part is all network. In a training graph, the result is searched among the values through
    which every trained weight reaches the loss: from the first of them on, as long as no further input (the labels)
    comes in and the scope is one that the layers share. Where there is none but the loss, it is the loss.
    """
    name = next((e.graph for e in program.schedule.cycle if program.graphs[e.graph].inputs), None)
    if name is None:
        raise PassError("no graph of the program takes an input: there is no network to export")
    graph = program.graphs[name]
    if node is not None:
        found = next((n for n in graph if n.name == node), None)
        if found is None:
            raise PassError(f"graph '{name}' has no node '{node}'; boost-inspect --format text shows their names")
        return Network(graph, {node: found}, False)
    results = _whole(graph)
    if BACKWARD not in network_parts(graph).values():
        return Network(graph, results, True)
    loss = results.get("loss") or next(iter(results.values()))
    loss = passed_on(graph, [loss])[0] or loss
    trained = {name for name, v in program.state.items() if v.role == "weight" and v.trainable is not False}
    value = _prediction(graph, loss, trained)
    return Network(graph, {"loss" if value is loss else "output": value}, False)


def _whole(graph: Graph) -> dict[str, Value]:
    value = result_value(graph)
    values = list(value.operands) if isinstance(value, Node) and value.op.name == "MakeTuple" else [value]
    names = graph.outputs if len(graph.outputs) == len(values) else [f"output{i}" for i in range(len(values))]
    return dict(zip(names, values, strict=True))


def _prediction(graph: Graph, loss: Value, trained: set[str]) -> Value:
    needed = _ancestors(loss)
    fed: dict[Value, int] = {value: 1 << i for i, value in enumerate(graph.inputs)}
    last: dict[Value, int] = {}
    order = [n for n in graph if n in needed]
    weighted: set[Value] = {s for n, s in graph.states.items() if n in trained}
    entries = 0  # the last place where a weight comes in
    scopes: list[str] = []
    for at, node in enumerate(order):
        for operand in carried_operands(node):
            fed[node] = fed.get(node, 0) | fed.get(operand, 0)
            if operand in weighted:
                weighted.add(node)
                last[operand] = at
                if isinstance(operand, State) or (isinstance(operand, Node) and operand.op.name == "Load"):
                    entries = at
                    scopes.append(node.scope)
    layers = _common(scopes)
    chosen: Node | None = None
    reach = -1
    for at, node in enumerate(order):
        # All that is weighted and stands before the node is used up by it: every path goes through it.
        if node in weighted and reach <= at and at >= entries:
            same = chosen is None or (fed.get(node, 0) == fed.get(chosen, 0) and _inside(node.scope, layers))
            if not same:
                break
            chosen = node
        if node in weighted:
            reach = max(reach, last.get(node, at))
        for operand in carried_operands(node):
            if operand in weighted and not isinstance(operand, Node):
                reach = max(reach, last[operand])
    return chosen if chosen is not None else loss


def _ancestors(value: Value) -> set[Value]:
    """What a value is computed from, order left aside."""
    found = {value}
    stack = [value]
    while stack:
        here = stack.pop()
        for operand in carried_operands(here) if isinstance(here, Node) else ():
            if operand not in found and not (isinstance(operand, Node) and operand.op.name == "UpdateState"):
                found.add(operand)
                stack.append(operand)
    return found


def _common(scopes: list[str]) -> list[str]:
    """The cells that all scopes stand in; a scope's last part is the operation itself."""
    parts = [scope.split("/")[:-1] for scope in scopes if "/" in scope]
    if not parts:
        return []
    shared = parts[0]
    for other in parts[1:]:
        n = next(
            (i for i, (a, b) in enumerate(zip(shared, other, strict=False)) if a != b), min(map(len, (shared, other)))
        )
        shared = shared[:n]
    return shared


def _inside(scope: str, layers: list[str]) -> bool:
    return scope.split("/")[: len(layers)] == layers
