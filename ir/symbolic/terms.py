"""Terms: what a value of a graph is computed from, each written down once, so that equal terms are one number.

A term is a head with arguments, which are terms. Heads are tuples that begin with their kind:

=========== ==========================================================================================================
state       what a state holds when the graph begins: ``("state", name)``
input       an input of the micro-batch: ``("input", position)``
const       a constant, by its bits
op          the result of a primitive that changes nothing: ``("op", primitive, type)``
written     what a primitive leaves in one of the operands that it writes
draw        the result of a random primitive, with a serial number: two draws are never one
item, tuple an element of a result that is a tuple; a tuple that a primitive takes
ite         one of two values, by a condition
loop        a function that calls itself, by the terms of its body; ``again`` is the call within, ``formal`` an argument
mean        the mean of a term over the micro-batches of the window
held, given what a state holds in the middle of a window; what a rule or a formula takes
=========== ==========================================================================================================
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable

from ..core.attributes import Attribute, TensorValue, bits
from ..core.data import numbers
from ..core.graph import Node
from ..core.op import Op
from ..core.predicates import written_operands
from ..core.types import DType, TensorType, Type

Head = tuple[Hashable, ...]
Shape = tuple[int, ...] | None
"""Of a tensor; None of anything else, and of a tensor whose shape is not fixed."""

REAL = "real"
"""What stands for each type of floating-point numbers where types do not differ."""
VARIES, AVERAGED = 1, 2
"""Traits of a term, which it has from its arguments: it may differ from one micro-batch of a cycle to the next; a mean
over the micro-batches is part of it."""


class Terms:
    """The terms of one proof, by number. An argument has a smaller number than what it is an argument of. ``rounds``:
    whether types of floating-point numbers differ; otherwise all are the real numbers, and a cast between them is
    none."""

    def __init__(self, *, rounds: bool = True) -> None:
        self.rounds = rounds
        self.heads: list[Head] = []
        self.arguments: list[tuple[int, ...]] = []
        self.shapes: list[Shape] = []
        self.nodes: list[Node | None] = []
        """A node that computes the term: the first that was met."""
        self.traits: list[int] = []
        self._numbers: dict[tuple[Head, tuple[int, ...]], int] = {}
        self._primitives: dict[Op, int] = {}
        self._keys: dict[Hashable, int] = {}
        self._types: dict[Type, tuple[Hashable, Shape]] = {}
        self.values: dict[int, Attribute] = {}
        """The values of the constants."""

    def __len__(self) -> int:
        return len(self.heads)

    def make(
        self,
        head: Head,
        arguments: tuple[int, ...] = (),
        shape: Shape = None,
        node: Node | None = None,
        traits: int = 0,
    ) -> int:
        """The number of a term. ``shape``, ``node`` and ``traits`` of its own count where it is new."""
        key = (head, arguments)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.heads)
            for a in arguments:
                traits |= self.traits[a]
            self.heads.append(head)
            self.arguments.append(arguments)
            self.shapes.append(shape)
            self.nodes.append(node)
            self.traits.append(traits)
        elif shape is not None and self.shapes[number] is None:
            self.shapes[number] = shape
        return number

    def find(self, head: Head, arguments: tuple[int, ...] = ()) -> int | None:
        """The number of a term if it has been made."""
        return self._numbers.get((head, arguments))

    def constant(self, value: Attribute, node: Node | None = None) -> int:
        shape = value.type.shape if isinstance(value, TensorValue) else ()
        number = self.make(("const", bits(value) if self.rounds else exactly(value)), (), shape, node)
        self.values.setdefault(number, value)
        return number

    def op(self, op: Op) -> int:
        """The number of a primitive with its attributes."""
        number = self._primitives.get(op)
        if number is None:
            number = self._primitives[op] = self._keys.setdefault(op.key, len(self._keys))
        return number

    def type(self, type_: Type) -> tuple[Hashable, Shape]:
        """What a head says of a result's type, and the shape."""
        found = self._types.get(type_)
        if found is None:
            shape = type_.shape if isinstance(type_, TensorType) and type_.is_static else None
            said = (self.dtype(type_.dtype), type_.shape) if isinstance(type_, TensorType) else ()
            found = self._types[type_] = (said, shape)
        return found

    def dtype(self, dtype: DType) -> str:
        """What is said of a type of elements."""
        return dtype.value if self.rounds or not dtype.is_float else REAL

    def applied(self) -> dict[Node, int]:
        """The calls of functions that are not followed, and the term of the function that each calls."""
        return {
            node: self.arguments[t][0]
            for t, node in enumerate(self.nodes)
            if node is not None and self.heads[t][0] == "apply" and len(self.arguments[t]) == node.num_operands
        }

    def name(self, number: int) -> str:
        """The primitive of a term, or its kind."""
        head = self.heads[number]
        return str(head[1]) if head[0] in ("op", "written", "draw") else str(head[0])

    def below(self, roots: Iterable[int], known: Container[int] = ()) -> list[int]:
        """The terms that the roots are made of, arguments first, but for those that are ``known`` and what they are
        made of."""
        found: set[int] = set()
        stack = [r for r in roots if r not in known]
        while stack:
            number = stack.pop()
            if number in found:
                continue
            found.add(number)
            stack.extend(a for a in self.arguments[number] if a not in known and a not in found)
        return sorted(found)


def exactly(value: Attribute) -> Hashable:
    """What tells a constant from others, whatever type holds its numbers."""
    if isinstance(value, TensorValue) and value.type.dtype.is_float:
        return REAL, value.type.shape, numbers(value.type, value.data).astype("float64").tobytes()
    return bits(value)


def written_state(terms: Terms, t: int, node: Node) -> str | None:
    """The state that the primitive of a term writes first, whatever it held before."""
    writes = written_operands(node)
    if not writes:
        return None
    t = terms.arguments[t][writes[0]]
    while terms.heads[t][0] in ("written", "ite"):
        arguments, before = terms.arguments[t], terms.nodes[t]
        if terms.heads[t][0] == "ite":
            t = arguments[2]
        elif before is None or not (into := written_operands(before)):
            return None
        else:
            t = arguments[into[0]]
    return str(terms.heads[t][1]) if terms.heads[t][0] == "state" else None
