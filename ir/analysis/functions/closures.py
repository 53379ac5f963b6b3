"""Functions as values: which functions each call may reach, and what each function input stands for, through closures
that functions return, take as arguments and choose between.

The backward part of a branch or a loop is called so: forward returns a closure, backward calls it. :mod:`.calls`
answers the same for the calls of one graph, without following a closure through another call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...core.graph import Graph, GraphRef, Input, Node, Use, Value
from ...core.op import CALL

Path = tuple[int, ...]
"""Indices into nested tuples, outermost first."""


class Closures:
    """``bound``: for every function input the (node, operand index) that it is bound to, by a Partial or a call.
    ``targets``: for every call the functions that it may reach; it reaches more than these if it is in ``open``.
    ``callers``: the calls that may reach a function. ``formals``: the inputs that a use of a value binds. Linear in
    nodes for each level of nested closures."""

    def __init__(self, main: Graph):
        self.bound: dict[Input, dict[tuple[Node, int], None]] = {}
        self.targets: dict[Node, dict[Graph, None]] = {}
        self.callers: dict[Graph, dict[Node, None]] = {}
        self.open: set[Node] = set()
        calls: list[Node] = []
        for node in main.all_nodes():
            if node.op is CALL:
                calls.append(node)
                self.targets[node] = {}
            elif node.op.name == "Partial" and isinstance(bound := node.operand(0), GraphRef):
                self._bind(bound.graph, 0, node)
        changed = True
        while changed:
            changed = False
            for call in calls:
                for function, taken in self._reached(call):
                    if function is None:
                        continue
                    self.callers.setdefault(function, {})[call] = None
                    self.targets[call][function] = None
                    changed |= self._bind(function, taken, call)
        self.open = {call for call in calls if any(function is None for function, _ in self._reached(call))}
        self.formals: dict[Use, list[Input]] = {}
        for formal, sites in self.bound.items():
            for site in sites:
                self.formals.setdefault(site, []).append(formal)

    def binding(self, formals: Iterable[Input]) -> dict[Node, set[int]]:
        """The calls and Partials that give these inputs of functions their values, and by which operands."""
        found: dict[Node, set[int]] = {}
        for formal in formals:
            for node, i in self.bound[formal]:
                found.setdefault(node, set()).add(i)
        return found

    def step(self, value: Value, path: Path) -> list[tuple[Value, Path]] | None:
        """The sources of element ``path`` of ``value``, one step up; None where ``value`` computes it itself."""
        if isinstance(value, Input):
            sites = self.bound.get(value)
            return None if sites is None else [(node.operand(i), path) for node, i in sites]
        if not isinstance(value, Node):
            return None
        name = value.op.name
        if name == "Depend":
            return [(value.operand(0), path)]
        if name == "TupleGetItem" and (index := element(value)) is not None:
            return [(value.operand(0), (index, *path))]
        if name == "MakeTuple" and path and path[0] < value.num_operands:
            return [(value.operand(path[0]), path[1:])]
        if value.op is CALL and self.targets[value]:
            return [(function.result, path) for function in self.targets[value] if function.has_result]
        return None

    def _bind(self, function: Graph, taken: int, node: Node) -> bool:
        """Binds inputs from number ``taken`` on to the operands of a Partial or a call; says whether that is news."""
        news = False
        for i, formal in enumerate(function.inputs[taken : taken + node.num_operands - 1], 1):
            sites = self.bound.setdefault(formal, {})
            if (node, i) not in sites:
                sites[node, i] = None
                news = True
        return news

    def _reached(self, call: Node) -> Iterator[tuple[Graph | None, int]]:
        """The functions behind operand 0, each with how many inputs are bound; None for one that is not known (yet)."""
        stack: list[tuple[Value, Path, int]] = [(call.operand(0), (), 0)]
        seen = set(stack)
        while stack:
            value, path, taken = stack.pop()
            following: list[tuple[Value, Path, int]] = []
            if isinstance(value, GraphRef):
                yield value.graph, taken
            elif isinstance(value, Node) and value.op.name == "Switch":
                following = [(value.operand(i), path, taken) for i in range(1, value.num_operands)]
            elif isinstance(value, Node) and value.op.name == "Partial" and isinstance(value.operand(0), GraphRef):
                following = [(value.operand(0), path, taken + value.num_operands - 1)]
            elif (sources := self.step(value, path)) is not None:
                following = [(source, rest, taken) for source, rest in sources]
            else:
                yield None, taken
            for item in following:
                if item not in seen:
                    seen.add(item)
                    stack.append(item)


def unpacked(value: Value, path: Path) -> Value:
    """An element of a value, as far as it is packed where ``value`` is."""
    while path and isinstance(value, Node) and value.op.name == "MakeTuple":
        value, path = value.operand(path[0]), path[1:]
    return value


def element(item: Node) -> int | None:
    """The constant index of a TupleGetItem, counted from the front; None where it is not constant."""
    index = item.operand(1).literal
    if not isinstance(index, int) or index >= 0:
        return index if isinstance(index, int) else None
    elements = getattr(item.operand(0).type, "elements", ())
    return index + len(elements) if -len(elements) <= index else None
