"""Numbers of values: equal where two graphs, whatever their nodes are called, compute the same from inputs and state.

Tokens count as operands do, so the number of a write tells what happened before it. Numbers are hashes: they serve to
find candidates, and whoever pairs two nodes by them compares the nodes themselves afterwards.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ...core.attributes import bits
from ...core.graph import Constant, Graph, GraphRef, Input, Node, State, Value
from ...core.op import Op
from ...core.types import FunctionType, TupleType, Type

_ALL = (1 << 61) - 1
_ROUNDS = 3
"""How deep a call is looked into: functions may call each other in a circle."""
_PLAIN = frozenset({str, bool, int})
"""Types of values that hash by value; of floats a NaN does not."""


class ValueNumbers:
    """Of a main graph with its functions. ``inputs``: what stands for an input, where that is not its position."""

    def __init__(self, main: Graph, inputs: Mapping[Input, Hashable] | None = None):
        self._leaves: dict[Value, int] = {}
        self._ops: dict[Op, int] = {}
        self._inputs: dict[Input, Hashable] = dict(inputs or {})
        self.functions: dict[Graph, int] = {}
        for _ in range(_ROUNDS):
            self.functions = {f: self.whole(f) for f in main.functions.values()}
            self._leaves.clear()

    def signature(self, node: Node) -> int:
        """Primitive and type; which functions a type names does not count."""
        found = self._ops.get(node.op)
        if found is None:
            found = self._ops[node.op] = hash((node.op.key, node.op.instance, node.op.kind))
        return hash((found, _plain_type(node.type)))

    def nodes(self, graph: Graph) -> dict[Node, int]:
        """The numbers of a graph's nodes, without those of its functions."""
        for i, value in enumerate(graph.inputs):
            self._inputs.setdefault(value, i)
        found: dict[Node, int] = {}
        for node in graph:
            operands = [found.get(v, 0) if isinstance(v, Node) else self._leaf(v) for v in node._operands]
            found[node] = hash((self.signature(node), *operands))
        return found

    def whole(self, graph: Graph) -> int:
        """The number of a graph: what it takes, computes and returns, and its notes."""
        numbers = self.nodes(graph)
        result: Hashable = None
        if graph.has_result:
            value = graph.result
            result = numbers.get(value) if isinstance(value, Node) else self._leaf(value)
        about = (graph.outputs, _mapping(graph.attributes), _mapping(graph.info))
        types = tuple(_plain_type(v.type) for v in graph.inputs)
        return hash((types, about, result, sum(numbers.values()) & _ALL))

    def _leaf(self, value: Value) -> int:
        found = self._leaves.get(value)
        if found is None:
            found = self._leaves[value] = hash((self._key(value), _plain_type(value.type)))
        return found

    def _key(self, value: Value) -> Hashable:
        if isinstance(value, State):
            return "state", value.name
        if isinstance(value, Input):
            return "input", self._inputs.get(value)
        if isinstance(value, Constant):
            return "constant", bits(value.value)
        if isinstance(value, GraphRef):
            return "function", self.functions.get(value.graph)
        return None


def notes(node: Node) -> int:
    """A hash of scope, marks and links, which say what a node is and not what it computes."""
    if not (node.marks or node.primal):
        return hash(node.scope)
    return hash((node.scope, _mapping(node.marks), _mapping(node.primal)))


def _plain_type(type_: Type) -> Hashable:
    if isinstance(type_, FunctionType):
        return "function", type_.union
    if isinstance(type_, TupleType):
        return "tuple", tuple(map(_plain_type, type_.elements)), type_.is_list, type_.dynamic
    return type_


def _mapping(values: Mapping[str, object]) -> Hashable:
    if all(type(v) in _PLAIN for v in values.values()):
        return hash(frozenset(values.items()))
    return frozenset((k, _note(v)) for k, v in values.items())


def _note(value: object) -> Hashable:
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, (list, tuple)):
        return tuple(map(_note, value))
    return value if isinstance(value, Type) else bits(value)
