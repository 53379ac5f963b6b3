"""Nodes of the forward part that autodiff did not mark: they stood outside the differentiated function.

A training cell may sum two losses, compute an accuracy, add the loss to a running total, keep a hidden state for the
next step, or push features into a queue, all after the gradients were taken. None of it depends on a gradient, and it
happens for every batch: that is forward. States that such writes read, or that are written from theirs, are of one
class with them (mean, variance and count; a queue and its pointer): all are forward, or none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ...core.graph import Graph, Input, Node, State, Value
from ...core.op import CALL
from ...core.predicates import is_effect
from ...core.primitives import Family, facts, named
from ...core.types import TensorType, is_monad
from ...core.walk import carried_operands, result_value, unpacked, untied_operands, walk, without_order
from ..effects.state_access import Summary, describe, location
from .origins import Computed, Origins

FORWARD = "forward"
_PRODUCTS = named(Family.PRODUCT)
_ADDING = named(Family.SUM, Family.TOTAL, Family.COPY, Family.TUPLE) | {"Depend", "UpdateState"}


@dataclass(frozen=True, slots=True)
class _Cone:
    """What a value is made of outside of forward and backward: ``nodes``, and the states that these read."""

    nodes: list[Node]
    reads: set[Value]


def adopt_forward(graph: Graph, parts: dict[Node, str], marked: Collection[Node], known: Mapping[str, Summary]) -> None:
    """Adds to ``parts`` results that are computed from forward values alone, and writes of such values to state that
    the update side does not read. ``marked``: the nodes that autodiff marked. Linear in nodes for each round of adopted
    writes."""
    fed = _fed(graph)
    writers = _writers(graph, parts, known)
    adopted = _adopted(writers, _free_of_update(writers, parts), marked, fed)
    for node, cone in adopted.items():
        for n in (node, *cone.nodes):
            parts[n] = FORWARD
    others = {state for state, nodes in writers.items() if not all(n in adopted for n in nodes)}
    for value in _results(graph, parts):
        found = _cone([value], parts)
        if found and others.isdisjoint(found.reads) and any(v in fed for v in found.nodes):
            for n in found.nodes:
                parts[n] = FORWARD


def _results(graph: Graph, parts: Mapping[Node, str]) -> list[Value]:
    """What the results are, or are computed from in functions."""
    if not graph.functions:
        return [without_order(value) for value in unpacked([result_value(graph)])]
    origins = [r.origin for r in Origins(graph, parts).results() if r.origin is not None]
    behind = walk(origins, lambda o: o.operands if isinstance(o, Computed) else ())
    return [value for value in behind if not isinstance(value, Computed)]


def _free_of_update(writers: Mapping[Value, list[Node]], parts: Mapping[Node, str]) -> dict[Node, _Cone]:
    """The writes that take nothing of the update side, to states of which it takes nothing."""
    free: dict[Node, _Cone] = {}
    for node in {n: None for nodes in writers.values() for n in nodes}:
        cone = _written_cone(node, parts)
        if cone is not None:
            free[node] = cone
    while free:
        others = (n for nodes in writers.values() for n in nodes if n not in free)
        needed = set(walk(others, lambda n: untied_operands(n) if n not in parts else []))
        bound = {
            s for s, nodes in writers.items() if not all(n in free for n in nodes) or any(u in needed for u in s.uses)
        }
        gone = [n for state in bound for n in writers.get(state, ()) if n in free]
        gone += [n for n, cone in free.items() if not bound.isdisjoint(cone.reads)]
        if not gone:
            break
        for node in gone:
            free.pop(node, None)
    return free


def _adopted(
    writers: Mapping[Value, list[Node]], free: Mapping[Node, _Cone], marked: Collection[Node], fed: set[Value]
) -> dict[Node, _Cone]:
    """Of the writes that are ``free``: those that take something of the batch, and all of a class with them."""
    writes: dict[Node, set[Value]] = {}
    for state, nodes in writers.items():
        for node in nodes:
            writes.setdefault(node, set()).add(state)
    reads = {node: _read_by_cell(node, marked) for node in free}
    adopted = {node: cone for node, cone in free.items() if any(v in fed for v in _written(node))}
    moving = {state for node in adopted for state in writes[node]}
    taken = {state for node in adopted for state in reads[node]}
    pending = True
    while pending:
        pending = False
        for node, cone in free.items():
            if node not in adopted and not (
                moving.isdisjoint(writes[node] | reads[node]) and taken.isdisjoint(writes[node])
            ):
                adopted[node] = cone
                moving |= writes[node]
                taken |= reads[node]
                pending = True
    return adopted


def _read_by_cell(node: Node, marked: Collection[Node]) -> set[Value]:
    """The states that a write reads by what the cell computes outside of the differentiated function."""
    behind = walk(_written(node), lambda v: carried_operands(v) if v not in marked else ())
    return {v for v in behind if isinstance(v, State)}


def _fed(graph: Graph) -> set[Value]:
    """Values that depend on an input of the graph."""
    fed: set[Value] = {v for v in graph.inputs if not is_monad(v.type)}
    for node in graph:
        # A Depend hands on its first operand; tokens are never in the set.
        operands = node._operands[:1] if node.op.name == "Depend" else node._operands
        if node.op.name != "UpdateState" and not fed.isdisjoint(operands):
            fed.add(node)
    return fed


def _writers(graph: Graph, parts: Mapping[Node, str], known: Mapping[str, Summary]) -> dict[Value, list[Node]]:
    """The unmarked effects that write a state."""
    writers: dict[Value, list[Node]] = {}
    for node in graph:
        if node not in parts and is_effect(node):
            effect = describe(node, known)
            for state in effect.writes if effect is not None else ():
                writers.setdefault(state, []).append(node)
    return writers


def _written(node: Node) -> list[Value]:
    """The values that an effect writes, or by which it tells where."""
    return [v for v in node.operands if not is_monad(v.type) and (isinstance(v, Input) or location(v) is None)]


def _written_cone(node: Node, parts: Mapping[Node, str]) -> _Cone | None:
    """The unmarked nodes behind what ``node`` writes, if that needs no gradient and no other effect."""
    if node.op is CALL or facts(node.op).gradient is not None:
        return None
    cone = _cone(_written(node), parts)
    return None if cone is None or _descends(node, cone, parts) else cone


def _descends(write: Node, cone: _Cone, parts: Mapping[Node, str]) -> bool:
    """Whether a write takes the derivative of the loss by what it writes: the other factor of a product with it that
    the loss adds up. That is a gradient, which autodiff had not to compute, and no statistic."""
    state = location(write.operand(0))
    taken = {v for node in (write, *cone.nodes) for v in carried_operands(node)}
    loads = (node for node in state.uses if node.op.name == "Load") if isinstance(state, State) else ()
    products = (p for load in loads for p in load.uses if p.op.name in _PRODUCTS and parts.get(p) == FORWARD)
    return any(not taken.isdisjoint(product.operands) and _is_added_up(product, parts) for product in products)


def _is_added_up(value: Node, parts: Mapping[Node, str]) -> bool:
    """Whether all that the forward part makes of a value is sums, down to one number."""
    made = list(walk([value], lambda node: [user for user in node.uses if parts.get(user) == FORWARD]))
    one = any(isinstance(node.type, TensorType) and node.type.shape == () for node in made)
    return one and all(node.op.name in _ADDING for node in made if node is not value)


def _cone(values: Iterable[Value], parts: Mapping[Node, str]) -> _Cone | None:
    """Unmarked nodes that the values need; None if they need backward or an effect."""
    stack = list(values)
    cone: dict[Node, None] = {}
    reads: set[Value] = set()
    while stack:
        value = stack.pop()
        if isinstance(value, State):
            reads.add(value)
        if not isinstance(value, Node) or value in cone or value.op.name == "UpdateState":
            continue
        if parts.get(value) == FORWARD:
            continue
        if value in parts or is_effect(value):
            return None
        cone[value] = None
        if value.op.name == "Load":
            state = location(value.operand(0))
            if state is None:
                return None
            reads.add(state)
        else:
            stack.extend(carried_operands(value))
    return _Cone(list(cone), reads)
