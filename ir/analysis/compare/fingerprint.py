"""Hashes of what values compute: equal where two graphs, whatever their nodes are called, do the same.

Hashes serve to find candidates; whoever pairs two nodes by them compares the nodes themselves afterwards.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ...core.attributes import bits
from ...core.graph import Constant, Graph, GraphRef, Input, Node, State, Value
from ...core.op import Op
from ...core.types import FunctionType, TupleType, Type

_MASK = (1 << 61) - 1
_RETURN = 1
_PLAIN = frozenset({str, bool, int})
"""Types of values that hash by value; of floats a NaN does not."""


class Keys:
    """Keys of primitives, types, and values that are no nodes. ``functions`` and ``inputs``: what stands for a function
    (by name) or an input, so that those of another graph can have the same."""

    def __init__(self, functions: Mapping[str, Hashable], inputs: Mapping[Input, Hashable]):
        self.functions = functions
        self._inputs = inputs
        self._ops: dict[Op, int] = {}
        self._types: dict[Type, int] = {}
        self._leaves: dict[Value, int] = {}

    def op(self, op: Op) -> int:
        found = self._ops.get(op)
        if found is None:
            found = self._ops[op] = hash((op.key, op.instance, op.kind))
        return found

    def type(self, type_: Type) -> int:
        found = self._types.get(type_)
        if found is None:
            found = self._types[type_] = hash(self._type(type_))
        return found

    def _type(self, type_: Type) -> Hashable:
        if isinstance(type_, FunctionType):
            return ("function", tuple(self.functions.get(name, name) for name in type_.functions), type_.union)
        if isinstance(type_, TupleType):
            return ("tuple", tuple(map(self._type, type_.elements)), type_.is_list, type_.dynamic)
        return type_

    def leaf(self, value: Value) -> int:
        """The key of an input, a state, a constant or a function reference."""
        found = self._leaves.get(value)
        if found is None:
            found = self._leaves[value] = hash(self._leaf(value))
        return found

    def _leaf(self, value: Value) -> Hashable:
        if isinstance(value, State):
            return ("state", value.name, self.type(value.type))
        if isinstance(value, Input):
            return ("input", self._inputs.get(value), self.type(value.type))
        if isinstance(value, Constant):
            return ("constant", bits(value.value), self.type(value.type))
        if isinstance(value, GraphRef):
            return ("function", self.functions.get(value.graph.name, value.graph.name))
        return None

    def sig(self, node: Node) -> int:
        """Primitive and type."""
        return hash((self.op(node.op), self.type(node.type)))


def notes(node: Node) -> int:
    """A hash of scope, marks and links, which say what a node is and not what it computes."""
    if not (node.marks or node.primal):
        return hash(node.scope)
    return hash((node.scope, _mapping(node.marks), _mapping(node.primal)))


def _mapping(values: Mapping[str, object]) -> Hashable:
    if not values:
        return None
    if all(type(v) in _PLAIN for v in values.values()):
        return hash(frozenset(values.items()))
    return frozenset((k, _note(v)) for k, v in values.items())


def _note(value: object) -> Hashable:
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, (list, tuple)):
        return tuple(map(_note, value))
    return value if isinstance(value, Type) else bits(value)


def upward(graph: Graph, keys: Keys) -> dict[Node, int]:
    """For each node a hash of the expression that it is: primitive, type, operands, and so on up to the inputs."""
    up: dict[Node, int] = {}
    leaf = keys.leaf
    for node in graph:
        parts = [keys.sig(node)]
        parts += [up.get(v, 0) if isinstance(v, Node) else leaf(v) for v in node._operands]
        up[node] = hash(tuple(parts))
    return up


def colours(graph: Graph, keys: Keys) -> dict[Node, int]:
    """For each node a hash of all that it is computed from and all that it is used for.

    Two nodes that the result needs have the same colour only if they are one: their uses differ in user or position.
    """
    up = upward(graph, keys)
    colour: dict[Node, int] = {graph._return: _RETURN}
    for node in reversed(graph):
        used = 0
        for user, i in node.use_sites():
            used += hash((colour.get(user, 0), i))
        colour[node] = hash((up[node], notes(node), used & _MASK))
    return colour


def body_hash(graph: Graph, keys: Keys) -> int:
    """A hash of a whole graph without its functions: what it takes, computes and returns, and its notes."""
    up = upward(graph, keys)
    everything = sum(up.values()) & _MASK
    result: Hashable = None
    if graph.has_result:
        value = graph.result
        result = up.get(value, 0) if isinstance(value, Node) else keys.leaf(value)
    about = (graph.outputs, _mapping(graph.attributes), _mapping(graph.info))
    return hash((tuple(keys.type(v.type) for v in graph.inputs), about, result, everything))
