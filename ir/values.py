"""Values of a graph. Each has one definition and knows its users; a node *is* its result (A-normal form).

Uses are kept per user as one operand index or, where a user takes the value several times, a set of them:
setting one operand is O(1) even on a node with 64,000 operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

from .attributes import Attribute, bits, type_of
from .errors import VerifyError
from .types import Type
from .wording import counted

if TYPE_CHECKING:
    from .graph import Graph

NO_ATTRIBUTES: Mapping[str, Any] = MappingProxyType({})


class Op:
    """A primitive with its attributes: immutable, interned, shared by all nodes that apply it.

    ``kind`` is MindSpore's primitive type: 1 a class whose arguments are attributes, 2 a function whose
    arguments are all operands, 0 not recorded. ``instance`` is the name that the exporter recorded.
    """

    __slots__ = ("__weakref__", "attributes", "instance", "key", "kind", "name")
    _interned: ClassVar[WeakValueDictionary[Any, Op]] = WeakValueDictionary()

    name: str
    attributes: Mapping[str, Attribute]
    instance: str
    kind: int
    key: tuple[Any, ...]

    def __new__(
        cls, name: str, attributes: Mapping[str, Attribute] = NO_ATTRIBUTES, instance: str = "", kind: int = 0
    ) -> Op:
        # The order of attributes is kept (files record it) but is no part of what the primitive computes.
        ordered = tuple((k, bits(v)) for k, v in attributes.items())
        key = (name, ordered, instance, kind)
        op = cls._interned.get(key)
        if op is None:
            op = object.__new__(cls)
            op.name = name
            op.attributes = MappingProxyType(dict(attributes)) if attributes else NO_ATTRIBUTES
            op.instance = instance
            op.kind = kind
            op.key = (name, frozenset(ordered))
            cls._interned[key] = op
        return op

    def __repr__(self) -> str:
        return f"Op({self.name})"


CALL = Op("call")
"""Calls operand 0, a function or a closure, with the remaining operands."""
RETURN = Op("Return")


@dataclass(frozen=True, slots=True)
class Origin:
    """What a rewritten node was derived from: names of source nodes, and the passes that touched it, oldest first."""

    sources: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()


class Value:
    """Base of everything that can be an operand."""

    __slots__ = ("name", "type", "uses")

    def __init__(self, name: str, type: Type):
        self.name = name
        self.type = type
        self.uses: dict[Node, int | set[int]] = {}

    @property
    def users(self) -> list[Node]:
        """Each node that takes this value, once, in the order in which it came to use it."""
        return list(self.uses)

    def use_sites(self) -> Iterator[tuple[Node, int]]:
        """(user, operand index) of each use; a snapshot, so uses may be changed while iterating."""
        for user, at in list(self.uses.items()):
            if isinstance(at, int):
                yield user, at
            else:
                for i in sorted(at):
                    yield user, i

    def replace_uses(self, new: Value) -> int:
        """Every use of this value becomes a use of ``new``; linear in the uses. Returns how many there were."""
        count = 0
        for user, i in self.use_sites():
            user.set_operand(i, new)
            count += 1
        return count

    def _add_use(self, user: Node, i: int) -> None:
        at = self.uses.get(user)
        if at is None:
            self.uses[user] = i
        elif isinstance(at, int):
            self.uses[user] = {at, i}
        else:
            at.add(i)

    def _drop_use(self, user: Node, i: int) -> None:
        at = self.uses[user]
        if isinstance(at, int):
            del self.uses[user]
        else:
            at.discard(i)
            if len(at) == 1:
                self.uses[user] = at.pop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} %{self.name}: {self.type}>"


class Input(Value):
    """A graph input (or a function's parameter)."""

    __slots__ = ()


class State(Value):
    """A reference to the state variable of the same name; in-place operations write it through this value."""

    __slots__ = ()


class Constant(Value):
    """A constant: scalars, tuples, tensors, the first effect token."""

    __slots__ = ("value",)

    def __init__(self, name: str, value: Attribute, type: Type | None = None):
        super().__init__(name, type_of(value) if type is None else type)
        self.value = value


class GraphRef(Value):
    """A reference to a function of the same program; ``graph`` is the function."""

    __slots__ = ("graph",)

    def __init__(self, graph: Graph, type: Type):
        super().__init__(graph.name, type)
        self.graph = graph


class Node(Value):
    """The application of a primitive (or a call) to operands, and its result.

    ``scope`` is where in the user's network it stands (MindIR ``domain``). ``marks`` (MindIR ``node_attr``) and
    ``primal`` (``primal_attr``: links between forward and backward nodes) are the file's notes about the node.
    Build nodes with :meth:`Graph.create`.
    """

    __slots__ = ("_next", "_operands", "_prev", "graph", "marks", "op", "origin", "primal", "scope")

    def __init__(self, name: str, type: Type, op: Op, scope: str = ""):
        # Not through super(): a graph of 100,000 nodes makes as many of these.
        self.name = name
        self.type = type
        self.uses = {}
        self.op = op
        self.scope = scope
        self.marks: Mapping[str, Attribute] = NO_ATTRIBUTES
        self.primal: Mapping[str, Attribute] = NO_ATTRIBUTES
        self.origin: Origin | None = None
        self.graph: Graph | None = None
        self._operands: list[Value] = []
        self._prev: Node | None = None
        self._next: Node | None = None

    @property
    def operands(self) -> tuple[Value, ...]:
        """A snapshot; linear in the width. In loops over wide nodes hold on to it, or use :meth:`operand`."""
        return tuple(self._operands)

    @property
    def num_operands(self) -> int:
        return len(self._operands)

    def operand(self, i: int) -> Value:
        """VerifyError where there is none: a file can hold any node without its operands."""
        try:
            return self._operands[i]
        except IndexError:
            raise VerifyError(
                f"node '%{self.name}' ({self.op.name}) has {counted(len(self._operands), 'operand')}, and needs "
                f"{i + 1}: "
                "the file is damaged, or not from MindSpore"
            ) from None

    @property
    def attributes(self) -> Mapping[str, Attribute]:
        return self.op.attributes

    def set_attribute(self, name: str, value: Attribute) -> None:
        """Changes one attribute of this node alone (its primitive is shared, so it gets another one)."""
        self.op = Op(self.op.name, {**self.op.attributes, name: value}, self.op.instance, self.op.kind)

    def set_operand(self, i: int, new: Value) -> None:
        """O(1)."""
        old = self._operands[i]
        if old is not new:
            old._drop_use(self, i)
            self._operands[i] = new
            new._add_use(self, i)

    def set_operands(self, new: Sequence[Value]) -> None:
        """Replaces the whole operand list; linear in the old and new width."""
        if self._operands:
            for i, old in enumerate(self._operands):
                old._drop_use(self, i)
        self._operands = operands = list(new)
        for i, value in enumerate(operands):
            uses = value.uses
            if self in uses:
                value._add_use(self, i)
            else:
                uses[self] = i

    @property
    def next(self) -> Node | None:
        return self._next

    @property
    def prev(self) -> Node | None:
        return self._prev

    def __repr__(self) -> str:
        shown = ", ".join(f"%{v.name}" for v in self._operands[:8])
        more = ", …" if len(self._operands) > 8 else ""
        return f"<%{self.name} = {self.op.name}({shown}{more}): {self.type}>"
