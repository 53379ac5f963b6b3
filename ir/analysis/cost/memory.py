"""Estimated memory of a graph: what is alive at each of its nodes, the state apart.

The nodes are taken in the order in which they stand. A node's result occupies memory from the node to its last use,
a use through a view (``ir/core/views.py``) included. What is written in place occupies nothing new. UpdateState only
orders, so it keeps nothing alive. What a called function needs in itself counts at the call. Open dimensions count as
1; allocators round up, fuse and reuse as they like, so the numbers are for comparing graphs.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...core.graph import Constant, Graph, Node, Value
from ...core.op import CALL
from ...core.predicates import is_effect, written_operands
from ...core.primitives import VIEWS, facts
from ...core.types import TensorType, TupleType, Type, holds_function
from ...core.walk import without_order
from ..functions.calls import called_functions, callees_first
from ..training.anatomy import TrainingAnatomy
from ..training.network import BACKWARD, FORWARD

ACTIVATION, GRADIENT, BACKWARD_VALUE, UPDATE_VALUE = "activations", "gradients", "backward values", "update values"
TEMPORARY = "temporary values"


@dataclass(slots=True)
class GraphMemory:
    """Bytes while one graph runs, state apart. ``inputs`` and ``constants`` are there all the time. ``timeline`` holds,
    by kind of value, the bytes alive while each node runs, in the graph's order; what a called function needs in itself
    counts as the kind of its call. ``peak`` is the largest sum at one node, ``at`` that node (None: no nodes)."""

    inputs: int
    constants: int
    timeline: dict[str, array[int]]
    peak: int
    at: Node | None
    kept: int = field(default=0, repr=False)
    """Bytes of the graph's own values that its result holds."""

    @property
    def total(self) -> int:
        return self.inputs + self.constants + self.peak


def graph_memory(graph: Graph, kinds: Mapping[Node, str] | None = None) -> GraphMemory:
    """The estimate for a main graph. ``kinds`` says by node what its result is (an activation, a gradient), for the
    timeline; a node that is not in it makes a :data:`TEMPORARY`. Linear in nodes and operands."""
    return _estimate(graph, _functions(graph), kinds or {})


def _functions(graph: Graph) -> dict[str, GraphMemory]:
    known: dict[str, GraphMemory] = {}
    for function in callees_first(graph):
        known[function.name] = _estimate(function, known, {})
    return known


def always_there(graph: Graph) -> tuple[int, int]:
    """The bytes of a graph's inputs, and of the constants that its nodes take."""
    constants = {v for node in graph for v in node._operands if isinstance(v, Constant)}
    return sum(nbytes(v.type) for v in graph.inputs), sum(nbytes(c.type) for c in constants)


def allocations(graph: Graph) -> Iterator[list[tuple[int, int]]]:
    """For each node of a main graph, in order, what it occupies: (bytes, position of the last use) of each part of its
    result, and of what a called function needs in itself, which is free again after the node."""
    known = _functions(graph)
    lives = _Lives(graph)
    for at, node in enumerate(graph):
        inside = _inside(node, known)
        yield lives.parts(node, at, known) + ([(inside, at)] if inside else [])


def alive_at(graph: Graph, at: int) -> list[tuple[Node, int]]:
    """The nodes of a main graph whose results are in memory while node number ``at`` runs, with their bytes; what a
    called function needs in itself counts for its call."""
    found = []
    for position, (node, parts) in enumerate(zip(graph, allocations(graph), strict=True)):
        size = sum(size for size, end in parts if position <= at <= end)
        if size:
            found.append((node, size))
    return found


def value_kinds(graph: Graph, parts: Mapping[Node, str], found: TrainingAnatomy | None) -> dict[Node, str]:
    """The kind of each node's result: an activation (of the forward part), a gradient (of a weight), a backward value
    (any other of the backward part), or an update value. In a graph that is only a part of a training step (no anatomy
    was ``found``), gradients are the backward values that its update side takes."""
    gradients = {g for w in found.weights for g in w.gradient} if found else set()
    kinds: dict[Node, str] = {}
    for node in graph.all_nodes():
        part = parts.get(node)
        if part == FORWARD:
            kinds[node] = ACTIVATION
        elif part != BACKWARD:
            kinds[node] = UPDATE_VALUE
        elif node in gradients or (found is None and any(_takes(user, parts) for user in node.uses)):
            kinds[node] = GRADIENT
        else:
            kinds[node] = BACKWARD_VALUE
    return kinds


def _takes(user: Node, parts: Mapping[Node, str]) -> bool:
    """Whether a node of the update side computes with what it uses."""
    passes_on = ("UpdateState", "MakeTuple", "Depend", "Return")
    return parts.get(user) not in (FORWARD, BACKWARD) and user.op.name not in passes_on


LARGEST = 1 << 44
"""Bytes of one value at most: 16 TB. A damaged file may name sizes whose sums no counter holds."""


def nbytes(type_: Type) -> int:
    """Bytes of a value; 0 where it names a state, or is no tensor."""
    if isinstance(type_, TensorType):
        return 0 if type_.ref else min(type_.nbytes, LARGEST)
    return sum(map(nbytes, type_.elements)) if isinstance(type_, TupleType) else 0


def _estimate(graph: Graph, known: Mapping[str, GraphMemory], kinds: Mapping[Node, str]) -> GraphMemory:
    lives = _Lives(graph)
    count = len(graph)
    names = list(dict.fromkeys(kinds.get(n, TEMPORARY) for n in graph))
    timeline = {name: array("q", bytes(8 * count)) for name in names}
    freed: dict[tuple[str, int], int] = {}
    live = dict.fromkeys(names, 0)
    peak, where, kept = 0, None, 0
    for at, node in enumerate(graph):
        kind = kinds.get(node, TEMPORARY)
        for size, end in lives.parts(node, at, known):
            live[kind] += size
            freed[kind, end] = freed.get((kind, end), 0) + size
            kept += size if end == count else 0
        for name in names:
            timeline[name][at] = live[name]
        timeline[kind][at] += _inside(node, known)
        total = sum(timeline[name][at] for name in names)
        if total > peak or where is None:
            peak, where = total, node
        for name in names:
            live[name] -= freed.pop((name, at), 0)
    inputs, constants = always_there(graph)
    return GraphMemory(
        inputs=inputs,
        constants=constants,
        timeline=timeline,
        peak=peak,
        at=where,
        kept=kept,
    )


def _inside(node: Node, known: Mapping[str, GraphMemory]) -> int:
    """The memory of a called function beside its result, which counts as the caller's; the largest of several."""
    if node.op is not CALL:
        return 0
    called = [known[f.name] for f in called_functions(node) if f.name in known]
    return max((g.constants + g.peak - g.kept for g in called), default=0)


class _Lives:
    """Where each value is used last, as a position in the graph's order (its length: the result holds the value);
    elements of a tuple each for themselves.

    One sweep from the end: the users of a view have all been met before the view, so what they keep alive is passed on
    to its operands.
    """

    def __init__(self, graph: Graph):
        self.last: dict[Value, int] = {}
        self.elements: dict[Node, dict[int, int]] = {}
        count = len(graph)
        if graph.has_result:
            self.last[graph.result] = count
        for at, node in zip(range(count - 1, -1, -1), reversed(graph), strict=True):
            if node.op.name == "UpdateState":
                continue
            if node.op.name in VIEWS:
                self._pass_on(node)
                continue
            written = written_operands(node) if is_effect(node) else ()
            for i, operand in enumerate(node._operands):
                self._use(operand, self.last.get(node, at) if i in written else at)

    def _use(self, value: Value, end: int) -> None:
        if isinstance(value, Node) and end > self.last.get(value, -1):
            self.last[value] = end

    def _pass_on(self, view: Node) -> None:
        """A view's operands live as long as it is used; one that others only wait for keeps nothing alive."""
        end, name = self.last.get(view, -1), view.op.name
        if name == "MakeTuple":
            ends = self.elements.get(view, {})
            for i, operand in enumerate(view._operands):
                self._use(operand, max(end, ends.get(i, -1)))
        elif name == "Depend" or (name == "TupleGetItem" and not self._element(view, end)):
            self._use(view.operand(0), end)
        elif name != "TupleGetItem":
            for operand in view._operands:
                self._use(operand, end)

    def _element(self, item: Node, end: int) -> bool:
        """Whether a TupleGetItem keeps a known element of a tuple alive, and not all of it."""
        source, at = without_order(item.operand(0)), item.operand(1).literal
        if not isinstance(at, int) or not isinstance(source, Node) or not isinstance(source.type, TupleType):
            return False
        if source.op.name in VIEWS and source.op.name != "MakeTuple":
            return False
        ends = self.elements.setdefault(source, {})
        at %= max(len(source.type.elements), 1)
        ends[at] = max(ends.get(at, -1), end)
        return True

    def parts(self, node: Node, at: int, known: Mapping[str, GraphMemory]) -> list[tuple[int, int]]:
        """The memory of a node's result: (bytes, position of the last use) of each part."""
        if node.op.name in VIEWS:
            return []
        whole = self.last.get(node, at)
        ends = self.elements.get(node, {})
        if node.op is CALL and holds_function(node.type):
            # A closure holds what the function that made it has bound.
            made = (known[f.name].kept for f in called_functions(node) if f.name in known)
            return [(max(made, default=0), max((whole, *ends.values())))]
        if isinstance(node.type, TupleType):
            if facts(node.op).gradient is not None:
                return []  # an optimizer: its results are the weight and slots that it writes
            return [(nbytes(t), max(whole, ends.get(i, -1))) for i, t in enumerate(node.type.elements)]
        in_place = is_effect(node) and written_operands(node)
        return [] if in_place else [(nbytes(node.type), whole)]
