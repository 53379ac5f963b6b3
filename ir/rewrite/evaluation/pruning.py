"""Leaves out what functions return and nobody needs: the closures of the backward part, which branches and loops of a
training graph hand back beside their values.

A loop takes the closure of its next turn only to make its own of it. So an element is not kept because some call takes
it, but because the main graph's result needs it in the end: what is needed is marked from there on, and the rest goes.
"""

from __future__ import annotations

from ...analysis.effects.tokens import orders_only
from ...analysis.functions.calls import forget_unreached
from ...analysis.functions.closures import Closures, element
from ...core.graph import Graph, Node, Value
from ...core.inference import infer
from ...core.op import CALL
from ...core.types import TupleType, Type
from ...core.walk import live_nodes, walk, without_order


def prune(main: Graph) -> None:
    """Puts a number in the place of every element of a function's result that is not needed, and removes what nothing
    needs then. Linear in nodes. Nothing changes where a call cannot be followed."""
    if main.functions:
        closures = Closures(main)
        if not closures.open:
            _Needed(main, closures).empty_others()
    _sweep(main)


class _Needed:
    """Marks nodes from the result of the main graph on. Functions that one call may reach form a group, with those that
    return such a call: their results have one type, and its elements are needed of all or of none."""

    def __init__(self, main: Graph, closures: Closures):
        self.main = main
        self.closures = closures
        self.group = _groups(main, closures)
        self.returned: dict[Node, int] = {}
        for function, number in self.group.items():
            value = _stripped(function)
            if isinstance(value, Node) and value.op.name == "MakeTuple":
                self.returned[value] = number
        self.whole = {
            number
            for function, number in self.group.items()
            if (v := _stripped(function)) not in self.returned and not (isinstance(v, Node) and v.op is CALL)
        }
        """Groups with a function that returns something else."""
        self.live: set[Node] = set()
        self.demanded: set[tuple[int, int]] = set()
        self._pending: list[Node] = []
        self._mark(main.result)
        while self._pending:
            self._visit(self._pending.pop())

    def empty_others(self) -> None:
        empty = self.main.constant(0).type
        types: dict[int, Type] = {}
        for node, number in self.returned.items():
            if number in self.whole:
                continue
            for k, operand in enumerate(node.operands):
                if (number, k) not in self.demanded and operand.type != empty:
                    node.set_operand(k, node.home.constant(0))
                    types[number] = infer(node.op, node.operands)
        for node, number in self.returned.items():
            self._retype(node, types.get(number))
        for call, targets in self.closures.targets.items():
            self._retype(call, next((types.get(self.group[f]) for f in targets), None))

    def _retype(self, node: Node, type_: Type | None) -> None:
        """Of a value and what only waits behind it."""
        if type_ is not None:
            for here in walk([node], lambda n: [u for u, i in n.use_sites() if u.op.name == "Depend" and i == 0]):
                here.type = type_

    def _mark(self, value: Value) -> None:
        if isinstance(value, Node) and value not in self.live:
            self.live.add(value)
            self._pending.append(value)

    def _demand(self, number: int, k: int) -> None:
        if (number, k) not in self.demanded:
            self.demanded.add((number, k))
            for node, own in self.returned.items():
                if own == number and node in self.live and k < node.num_operands:
                    self._mark(node.operand(k))
                    self._demand_all_behind(node.operand(k))

    def _visit(self, node: Node) -> None:
        name = node.op.name
        if node in self.returned and self.returned[node] not in self.whole:
            for k, operand in enumerate(node.operands):
                if (self.returned[node], k) in self.demanded:
                    self._mark(operand)
                    self._demand_all_behind(operand)
            return
        for i, operand in enumerate(node.operands):
            self._mark(operand)
            waits = name == "UpdateState" or (name == "Depend" and i == 1)
            if waits or name == "Depend" or (name == "MakeTuple" and orders_only(node, i)):
                continue
            index = element(node) if name == "TupleGetItem" and i == 0 else None
            call = _call_behind(operand)
            if call is None:
                continue
            if index is None:
                self._demand_all_behind(operand)
            else:
                for function in self.closures.targets[call]:
                    self._demand(self.group[function], index)
        if node.op is CALL:
            for function in self.closures.targets[node]:
                if function.has_result:
                    self._mark(function.result)

    def _demand_all_behind(self, value: Value) -> None:
        call = _call_behind(value)
        if call is not None and isinstance(call.type, TupleType):
            for function in self.closures.targets[call]:
                for k in range(len(call.type.elements)):
                    self._demand(self.group[function], k)


def _groups(main: Graph, closures: Closures) -> dict[Graph, int]:
    """The number of each function's group."""
    number = {f: i for i, f in enumerate(main.functions.values())}
    members = {i: [f] for f, i in number.items()}
    returning: dict[Value | None, list[Graph]] = {}
    for function in main.functions.values():
        returning.setdefault(_stripped(function), []).append(function)
    for call, targets in closures.targets.items():
        first, *others = sorted({number[f] for f in (*targets, *returning.get(call, ()))}) or [0]
        for other in others:
            for function in members.pop(other):
                members[first].append(function)
                number[function] = first
    return number


def _stripped(function: Graph) -> Value | None:
    """The result of a function, without the Depends that only order."""
    return without_order(function.result) if function.has_result else None


def _call_behind(value: Value) -> Node | None:
    found = without_order(value)
    return found if isinstance(found, Node) and found.op is CALL else None


def _sweep(main: Graph) -> None:
    for body in main.all_graphs():
        if body.has_result:
            keep = live_nodes([body.result])
            body.erase_all(node for node in list(body) if node not in keep)
    forget_unreached(main)
