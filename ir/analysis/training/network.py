"""The network of a training graph: which nodes are forward, which are backward.

MindSpore's autodiff leaves marks: a node of the differentiated function carries the primal attribute ``unique_id``, a
node of its gradient carries ``forward_unique_id`` or stands in a ``Gradients/`` scope. A cell with a ``bprop`` of its
own stands in no such scope (:mod:`.own_backward`). What is neither marked nor
follows from what is belongs to the update side, or only orders. A gradient that the loss itself is computed from (of a
differential equation, a gradient penalty) has the marks of a gradient, but is forward. A cell that adds numbers up
shares the addition with its loss, and so may its marks be: ``sum`` over squares of gradients has one of the loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from ...core.graph import Graph, GraphRef, Input, Node, Value
from ...core.names import BACKWARD_ID, DUPLICATED, FORWARD_ID
from ...core.op import CALL
from ...core.predicates import is_effect, written_operands
from ...core.primitives import Family, named
from ...core.walk import carried_operands
from ..effects.state_access import Summary, summarize
from ..functions.calls import bindings, called_functions, picked, targets
from .cells import DERIVATIVES
from .forward_side import adopt_forward
from .own_backward import adopt_own_backward

FORWARD, BACKWARD, OPTIMIZER, OTHER = "forward", "backward", "optimizer", "other"
_HANDING_ON = named(Family.TUPLE) | {"Depend", "Load", "call"}
"""What computes nothing by itself, so that autodiff may have left it without a mark."""
RECOMPUTED = "recomputed"
"""What a reader is told of backward nodes that compute a forward value again (:func:`told`)."""


def mark(node: Node) -> str | None:
    """``forward`` or ``backward`` as the exporter marked the node, else None."""
    primal = node.primal
    if BACKWARD_ID in primal or node.scope.startswith(DERIVATIVES):
        return BACKWARD
    if FORWARD_ID in primal:
        return FORWARD
    return None


def told(node: Node, part: str) -> str:
    """The name of a node's part for a reader: copies of forward nodes are told from the rest of the backward part."""
    return RECOMPUTED if part == BACKWARD and DUPLICATED in node.marks else part


def network_parts(graph: Graph, known: dict[str, Summary] | None = None) -> dict[Node, str]:
    """The forward and backward nodes of a graph that need not be a whole training graph; the others are absent.
    ``known``: :func:`.state_access.summarize` of the graph, if at hand. Linear in nodes."""
    marking = _Marking(graph)
    parts = marking.run()
    adopt_own_backward(graph, parts)
    adopt_forward(graph, parts, marking.marked, summarize(graph) if known is None else known)
    return parts


def _data(node: Node) -> list[Value]:
    """What a node computes from, not what it waits for."""
    return [] if node.op.name == "UpdateState" else carried_operands(node)


class _Marking:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.parts: dict[Node, str] = {}
        self.marked: frozenset[Node] = frozenset()
        self.network_functions: set[Graph] = set()
        self.deriving: set[Node] = set()
        """Calls of functions that take a derivative; they may return the loss beside."""

    def run(self) -> dict[Node, str]:
        """Forward and backward parts: as marked, and as follows from it.

        Not every network node is marked (calls of branches and closures are not). What a marked node needs is
        network too, since no part of the network depends on the update side; so is what unpacks a network value, and
        the call of a closure that the network returned (the backward of a branch). Functions carry the part of who
        refers to them.
        """
        for node in self.graph.all_nodes():
            part = mark(node)
            if part is not None:
                self.parts[node] = part
        for graph in self.graph.all_graphs():
            for node in self._marked_by_mistake(graph):
                del self.parts[node]
        self.marked = frozenset(self.parts)
        if self.graph.functions:
            self._mark_network_calls()
        for graph in self.graph.all_graphs():
            self._spread(graph)
        for node in self.graph if self.graph.functions else ():
            if node in self.parts:
                self._mark_functions(node, self.parts[node])
        return self.parts

    def _marked_by_mistake(self, graph: Graph) -> list[Node]:
        """Nodes with the mark of the loss that are none of it: they are computed from a gradient by way of nodes
        without marks, and no derivative takes what they are computed from. Linear in nodes."""
        parts = self.parts
        made: set[Value] = set()
        suspects = False
        for node in graph:
            if parts.get(node) == BACKWARD or not made.isdisjoint(_data(node)):
                made.add(node)
                suspects = suspects or parts.get(node) == FORWARD
        if not suspects:
            return []
        derived = any(parts.get(n) == BACKWARD for function in self.graph.functions.values() for n in function)
        used: set[Node] = set()
        for node in reversed(list(graph)):
            if node in used or parts.get(node) == BACKWARD or (node.op is CALL and derived):
                used.update(v for v in _data(node) if isinstance(v, Node))
        mistaken: dict[Node, None] = {}
        for node in graph:
            if parts.get(node) == FORWARD and node in made and node not in used:
                behind = [v for v in _data(node) if isinstance(v, Node) and v in made]
                unmarked = [v for v in behind if v in mistaken or (v not in parts and v.op.name not in _HANDING_ON)]
                if unmarked and used.isdisjoint(unmarked):
                    mistaken[node] = None
        return list(mistaken)

    def _mark_network_calls(self) -> None:
        """A call of functions that hold forward nodes and no backward nodes is forward: where a network is one loop,
        the main graph has no marked node to start from. A call of functions that take a derivative, and do nothing to
        it, is backward: the cell has a loss for each case."""
        known: dict[Graph, set[str] | None] = {}
        for node in self.graph:
            functions = called_functions(node) if node.op is CALL and node not in self.parts else []
            for f in functions:
                if f not in known:
                    known[f] = self._held(f)
            held = [known[f] for f in functions]
            if held and all(parts is not None and parts - {OTHER} == {FORWARD} for parts in held):
                self.parts[node] = FORWARD
            elif None not in held and any(BACKWARD in parts for parts in held if parts):
                self.parts[node] = BACKWARD
                self.deriving.add(node)

    def _held(self, function: Graph) -> set[str] | None:
        """The parts that the nodes of a function are marked as; None where it updates, calls, or does something to
        derivatives that autodiff did not mark."""
        made: set[Value] = set()
        held: set[str] = set()
        for node in function:
            part = self.parts.get(node)
            if part is not None:
                held.add(part)
            elif node.op is CALL or node in self._changing:
                held.add(OTHER)
            derived = part == BACKWARD or not made.isdisjoint(_data(node))
            if derived:
                made.add(node)
                if part is None and node.op.name not in _HANDING_ON:
                    held.add(OTHER)
        return held if OTHER not in held or BACKWARD not in held else None

    def _spread(self, graph: Graph) -> None:
        """Extends forward and backward parts inside one graph until nothing changes; each round is linear. All that a
        forward node is computed from is forward, also gradients; what a backward node is computed from may be both."""
        parts = self.parts
        pending = [n for n in graph if n in parts]
        while pending:
            ancestors: list[Node] = []
            while pending:
                user = pending.pop()
                part = parts[user]
                for operand in user._operands:
                    if not isinstance(operand, Node):
                        continue
                    known = parts.get(operand)
                    if known == FORWARD or (known and part == BACKWARD) or operand.op.name == "UpdateState":
                        continue
                    waits = user.op.name == "Depend" and operand is not user._operands[0]
                    if waits and operand in self._changing:
                        continue
                    if known is None:
                        parts[operand] = BACKWARD if waits else part
                        ancestors.append(operand)
                        pending.append(operand)
                    elif not waits and operand not in self.deriving:
                        parts[operand] = FORWARD
                        pending.append(operand)
            unsettled = set(ancestors)
            for node in graph:
                if node in unsettled:
                    if parts[node] == BACKWARD:
                        parts[node] = self._part_of_operands(node)
                elif node not in parts and self._continues_network(node):
                    parts[node] = self._part_of_operands(node)
                    pending.append(node)

    @cached_property
    def _changing(self) -> set[Node]:
        """What is neither marked nor to be had before a state is written: a network that waits for it runs behind an
        update (of the discriminator, of the weights that a step tries)."""
        changing: set[Node] = set()
        for node in self.graph.all_nodes():
            if node not in self.marked and node.op.name != "UpdateState":
                writes = node.op is not CALL and is_effect(node) and bool(written_operands(node))
                if writes or not changing.isdisjoint(node._operands):
                    changing.add(node)
        return changing

    @cached_property
    def _bound(self) -> Mapping[Input, list[Value]]:
        return bindings(self.graph)

    def _part_of_operands(self, node: Node) -> str:
        """Backward if it takes a backward value, or calls a closure that forward returned; else forward. Of what a
        function returns beside derivatives, each value is what the function computes it as."""
        if self.graph.functions and (items := picked(node, self._bound)) is not None:
            parts = {self.parts.get(v, BACKWARD) for v in items if isinstance(v, Node) and v.graph is not node.graph}
            if parts == {FORWARD}:
                return FORWARD
        if any(isinstance(o, Node) and self.parts.get(o) == BACKWARD for o in node._operands):
            return BACKWARD
        return BACKWARD if self._calls_returned_closure(node) else FORWARD

    def _calls_returned_closure(self, node: Node) -> bool:
        return node.op is CALL and targets(node) is None

    def _continues_network(self, node: Node) -> bool:
        if node.op is not CALL and node.op.name != "TupleGetItem":
            return False
        source = node.operand(0)
        return isinstance(source, Node) and source in self.parts

    def _mark_functions(self, user: Node, part: str) -> None:
        """Unmarked nodes of the functions that a network node refers to, and of those that they refer to."""
        pending = [v.graph for v in user._operands if isinstance(v, GraphRef)]
        while pending:
            function = pending.pop()
            if function in self.network_functions:
                continue
            self.network_functions.add(function)
            for node in function:
                self.parts.setdefault(node, part)
                pending.extend(v.graph for v in node._operands if isinstance(v, GraphRef))
