"""Walks along the graph: iterative, so that a graph of any depth is fine, and linear, for each value is met once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from .graph import Graph, Node, Value
from .types import SimpleType, is_monad

T = TypeVar("T", bound=Hashable)
ORDERING = frozenset({"Depend"})
"""Primitives that pass operand 0 on and only order."""


def walk(starts: Iterable[T], following: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """The starts and all that ``following`` leads to, each once, the last one found first. ``following`` is asked after
    a thing was handed out, so who has seen enough stops."""
    stack = list(dict.fromkeys(starts))
    seen = set(stack)
    while stack:
        here = stack.pop()
        yield here
        for thing in following(here):
            if thing not in seen:
                seen.add(thing)
                stack.append(thing)


def through(value: Value, names: Collection[str]) -> Value:
    """The value behind nodes of the named primitives, which pass operand 0 on."""
    while isinstance(value, Node) and value.op.name in names:
        value = value.operand(0)
    return value


def without_order(value: Value) -> Value:
    """A value without the Depends that only keep effects alive."""
    return through(value, ORDERING)


def result_value(graph: Graph) -> Value:
    """The result of a graph without the Depends that only keep effects alive."""
    return without_order(graph.result)


def carried_operands(value: Value) -> list[Value]:
    """The operands that a node computes from: no tokens, and of a Depend only what it passes on."""
    if not isinstance(value, Node):
        return []
    operands = value._operands[:1] if value.op.name == "Depend" else value._operands
    return [v for v in operands if v.type.__class__ is not SimpleType or not is_monad(v.type)]


def unpacked(values: Sequence[Value]) -> list[Value]:
    """The values in order, with the elements of each tuple that was made here in its place."""

    def elements(value: Value) -> Sequence[Value]:
        return value._operands[::-1] if isinstance(value, Node) and value.op.name == "MakeTuple" else ()

    return [v for v in walk(values[::-1], elements) if not (isinstance(v, Node) and v.op.name == "MakeTuple")]


def untied_operands(node: Node) -> list[Node]:
    """The nodes that a node takes or waits for, but for tokens."""
    return [v for v in node._operands if isinstance(v, Node) and v.op.name != "UpdateState"]


def dead_nodes(backwards: Iterable[Node]) -> list[Node]:
    """The nodes that the result does not need, in order: all users of each are dead. ``backwards``: all, from the last
    to the first, users before what they take."""
    dead: dict[Node, None] = {}
    taken: set[Value] = set()  # by one of them at least
    for node in backwards:
        if not node.uses or (node in taken and dead.keys() >= node.uses.keys()):
            dead[node] = None
            taken.update(node._operands)
    return list(dead)[::-1]


def needed_only_by(nodes: Iterable[Node], roots: Collection[Value] = ()) -> dict[Node, None]:
    """These nodes, and those that they alone need, without the ``roots``; linear in the operands of what it returns."""
    found = dict.fromkeys(nodes)
    stack = list(found)
    others: dict[Node, int] = {}  # how many users a value has that are not among them
    while stack:
        for value in dict.fromkeys(stack.pop()._operands):
            if isinstance(value, Node) and value not in found and value not in roots:
                others[value] = left = others.get(value, len(value.uses)) - 1
                if not left:
                    found[value] = None
                    stack.append(value)
    return found


def needed_nodes(graph: Graph) -> list[Node]:
    """The nodes that the result needs, in order. Most graphs have few others, which are told by their users."""
    dead = set(dead_nodes(reversed(graph)))
    for node in dead:
        if any(v not in dead and isinstance(v, Node) and dead.issuperset(v.uses) for v in node._operands):
            live = live_nodes([graph.result])  # this one stands behind a user
            return [node for node in graph if node in live]
    return [node for node in graph if node not in dead] if dead else list(graph)


def live_nodes(roots: Iterable[Value], *, tokens: bool = True) -> set[Node]:
    """Nodes that the roots need, themselves included; one sweep. ``tokens``: also what comes before them by tokens."""
    live: set[Node] = set()
    add_live(live, roots, tokens=tokens)
    return live


def add_live(live: set[Node], roots: Iterable[Value], *, tokens: bool = True) -> None:
    """Adds the nodes that the roots need to those that are needed already, through which the sweep need not go."""
    stack = [v for v in roots if isinstance(v, Node) and v not in live]
    live.update(stack)
    while stack:
        for operand in stack.pop()._operands:
            if operand not in live and isinstance(operand, Node) and (tokens or operand.op.name != "UpdateState"):
                live.add(operand)
                stack.append(operand)
