"""Types of values: what MindSpore calls abstracts. Immutable and comparable; equal types may be one object.

A shape is a tuple of ints; ``-1`` is a dimension known only at run time, ``(-2,)`` an unknown rank,
as MindSpore writes them. ``str`` of a type is its spelling in the text form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import prod

from .naming import spell
from .wording import counted


class DType(str, Enum):
    """Element types by numpy's names, so that ``numpy.dtype(dtype)`` works (but for bfloat16, string)."""

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"
    STRING = "string"

    def __str__(self) -> str:
        return self.value

    __hash__ = str.__hash__  # that of Enum is slow, and not that of the equal string

    @property
    def itemsize(self) -> int:
        """Bytes of one element (0 for strings, which have no fixed size)."""
        return _ITEMSIZE[self]

    @property
    def is_float(self) -> bool:
        return self in (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64)

    @property
    def widened(self) -> DType:
        """The type to compute in: float32 for half precision, whose range squares and sums leave, else the same."""
        return DType.FLOAT32 if self in (DType.FLOAT16, DType.BFLOAT16) else self


_ITEMSIZE = {
    DType.BOOL: 1, DType.INT8: 1, DType.UINT8: 1, DType.INT16: 2, DType.UINT16: 2, DType.FLOAT16: 2,
    DType.BFLOAT16: 2, DType.INT32: 4, DType.UINT32: 4, DType.FLOAT32: 4, DType.INT64: 8, DType.UINT64: 8,
    DType.FLOAT64: 8, DType.COMPLEX64: 8, DType.COMPLEX128: 16, DType.STRING: 0,
}  # fmt: skip


MAX_RANK = 64
"""Of tensors in files: as numpy's. More is no shape, and its size a number that takes long to compute."""


class Type:
    """Base of all types."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TensorType(Type):
    """A dense tensor. ``ref`` names the state that the value aliases (the result of an in-place write)."""

    dtype: DType
    shape: tuple[int, ...]
    ref: str = ""
    min_shape: tuple[int, ...] = ()
    max_shape: tuple[int, ...] = ()

    @property
    def is_static(self) -> bool:
        return min(self.shape, default=0) >= 0

    @property
    def size(self) -> int:
        """Number of elements; dynamic dimensions count as one."""
        return prod([d for d in self.shape if d >= 0])

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        text = f"{self.dtype}[{','.join('?' if d == -1 else str(d) for d in self.shape)}]"
        if self.min_shape or self.max_shape:
            text += f"in[{_dims(self.min_shape)}]..[{_dims(self.max_shape)}]"
        return text + (f"@{spell(self.ref)}" if self.ref else "")


@dataclass(frozen=True, slots=True)
class ScalarType(Type):
    """A plain number or bool that is not a tensor (a Python number in the network's source)."""

    dtype: DType

    def __str__(self) -> str:
        return str(self.dtype)


@dataclass(frozen=True, slots=True)
class TupleType(Type):
    """A tuple or list. ``dynamic``: the file's mark for a length known only at run time, None if unmarked."""

    elements: tuple[Type, ...]
    is_list: bool = False
    dynamic: bool | None = None
    size: int = field(init=False, compare=False, repr=False)
    """The number of its elements, those of elements included; equal ones may be one object, so few objects can say
    much."""

    def __post_init__(self) -> None:
        size = 1 + len(self.elements)
        for t in self.elements:
            if isinstance(t, TupleType):
                size += t.size - 1
        object.__setattr__(self, "size", size)

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.elements))
        mark = {None: "", False: "!", True: "*"}[self.dynamic]
        return (f"[{inner}]" if self.is_list else f"({inner})") + mark


@dataclass(frozen=True, slots=True)
class SimpleType(Type):
    """A type without parameters: ``string``, ``none``, ``umonad`` (memory effects), ``iomonad``, ``unknown``."""

    kind: str

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True, slots=True)
class FunctionType(Type):
    """A closure over one of the named functions (several after a Switch)."""

    functions: tuple[str, ...]
    union: bool = False

    def __str__(self) -> str:
        names = ", ".join(f"@{spell(n)}" for n in self.functions)
        return f"{'union' if self.union else 'fn'}<{names}>"


@dataclass(frozen=True, slots=True)
class OpaqueType(Type):
    """A type encoding that is carried through unread: the serialized attribute of the file."""

    encoded: bytes

    def __str__(self) -> str:
        return f"opaque<{self.encoded.hex()}>"


STRING = SimpleType("string")
NONE = SimpleType("none")
UMONAD = SimpleType("umonad")
IOMONAD = SimpleType("iomonad")
UNKNOWN = SimpleType("unknown")
ANY = TensorType(DType.FLOAT64, (-2,))
"""How MindSpore writes the type of a call whose branches return different ones (False, or what an optimizer gives)."""
SIMPLE_TYPES = {t.kind: t for t in (STRING, NONE, UMONAD, IOMONAD, UNKNOWN)}


def holds_function(type_: Type) -> bool:
    """Whether a value of this type is, or has among its elements, a closure."""
    if isinstance(type_, TupleType):
        return any(holds_function(t) for t in type_.elements)
    return isinstance(type_, (FunctionType, OpaqueType))


def leaves(type_: Type) -> list[tuple[tuple[int, ...], Type]]:
    """The values in a tuple, those of nested tuples each for itself: the indices that lead to each, and its type. One
    whose length is known only at run time counts as one value."""
    found: list[tuple[tuple[int, ...], Type]] = []
    stack: list[tuple[tuple[int, ...], Type]] = [((), type_)]
    while stack:
        path, here = stack.pop()
        if isinstance(here, TupleType) and not here.dynamic:
            stack.extend(((*path, i), t) for i, t in reversed(list(enumerate(here.elements))))
        else:
            found.append((path, here))
    return found


def is_monad(t: Type) -> bool:
    return t.__class__ is SimpleType and (t is UMONAD or t in (UMONAD, IOMONAD))


def tensor(dtype: str | DType, *shape: int) -> TensorType:
    """Shorthand: ``tensor("float32", 2, 3)``."""
    return TensorType(DType(dtype), tuple(shape))


def _dims(shape: tuple[int, ...]) -> str:
    return ",".join("?" if d == -1 else str(d) for d in shape)


def readable(type_: Type, most: int = 60) -> str:
    """A type for people: without the file's marks, and where it is longer than ``most`` with fewer elements of a tuple,
    never with a piece of one."""
    if not isinstance(type_, TupleType):
        text = str(type_)
        return text if len(text) <= most else f"{text[: most - 1]}…"
    opened, closed = "[]" if type_.is_list else "()"
    shown: list[str] = []
    room = most - 2
    for i, element in enumerate(type_.elements):
        left = len(type_.elements) - i
        text = readable(element, max(room, 8))
        more = f"… {left} more" if shown else f"{counted(left, 'element')}"
        needed = len(text) + (0 if left == 1 else len(more) + 2)
        if needed > room:
            shown.append(more)
            break
        shown.append(text)
        room -= len(text) + 2
    return f"{opened}{', '.join(shown)}{closed}"
