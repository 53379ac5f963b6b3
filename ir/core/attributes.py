"""Attribute and constant values, and how they compare: by bits.

Plain Python values stand for the common MindIR encodings: ``bool``, ``int`` (int64), ``float`` (float32),
``str``, ``bytes`` (a string that is not UTF-8), ``None``, ``tuple``, ``list``. The classes here stand for the rest.
Two values are the same only if their bits are: 0.0 and -0.0 differ, a NaN equals itself, 1 and True differ.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from .data import BytesData, Data, numbers
from .types import IOMONAD, NONE, STRING, UMONAD, UNKNOWN, DType, ScalarType, TensorType, TupleType, Type

Attribute = Any
"""bool | int | float | str | bytes | None | tuple | list | Number | TensorValue | MonadValue | Opaque"""


@dataclass(frozen=True, slots=True)
class Number:
    """A scalar whose width is not the default one: int8 … uint64, float64."""

    dtype: DType
    value: int | float


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A constant tensor."""

    type: TensorType
    data: Data


@dataclass(frozen=True, slots=True)
class MonadValue:
    """The first token of an effect chain; ``kind`` is ``umonad`` (memory) or ``iomonad`` (input/output)."""

    kind: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """An encoding that is carried through unread: the serialized attribute, its name emptied."""

    encoded: bytes


STRUCT = {
    DType.BOOL: "?", DType.INT8: "b", DType.UINT8: "B", DType.INT16: "h", DType.UINT16: "H", DType.INT32: "i",
    DType.UINT32: "I", DType.INT64: "q", DType.UINT64: "Q", DType.FLOAT16: "e", DType.FLOAT32: "f", DType.FLOAT64: "d",
}  # fmt: skip
"""How :mod:`struct` packs an element; it has no bfloat16, complex numbers and strings."""


def scalar_tensor(dtype: str | DType, value: float | bool) -> TensorValue:
    """A constant tensor of shape ``[]``."""
    dtype = DType(dtype)
    if dtype is DType.BFLOAT16:
        data = struct.pack("<f", value)[2:]  # exact for the small powers and counts that passes use
    else:
        data = struct.pack("<" + STRUCT[dtype], value)
    return TensorValue(TensorType(dtype, ()), BytesData(data))


def bits(value: Attribute) -> Hashable:
    """A hashable key that is equal exactly for values that are the same by type and bits."""
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return (type(value).__name__, value)
    if isinstance(value, float):
        return ("float", struct.pack("<d", value))
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, tuple(bits(v) for v in value))
    if isinstance(value, Number):
        packed = struct.pack("<d", value.value) if isinstance(value.value, float) else value.value
        return ("number", value.dtype, packed)
    if isinstance(value, TensorValue):
        n = value.data.nbytes
        return ("tensor", value.type, bytes(value.data.view()) if n <= 256 else (n, value.data.digest()))
    if isinstance(value, MonadValue):
        return ("monad", value.kind)
    if isinstance(value, Opaque):
        return ("opaque", value.encoded)
    raise TypeError(f"not an attribute value: {value!r}")


def type_of(value: Attribute) -> Type:
    """The type of a constant with this value."""
    if isinstance(value, bool):
        return ScalarType(DType.BOOL)
    if isinstance(value, int):
        return ScalarType(DType.INT64)
    if isinstance(value, float):
        return ScalarType(DType.FLOAT32)
    if isinstance(value, (str, bytes)):
        return STRING
    if value is None:
        return NONE
    if isinstance(value, (tuple, list)):
        return TupleType(tuple(type_of(v) for v in value), isinstance(value, list))
    if isinstance(value, Number):
        return ScalarType(value.dtype)
    if isinstance(value, TensorValue):
        return value.type
    if isinstance(value, MonadValue):
        return UMONAD if value.kind == "umonad" else IOMONAD
    return UNKNOWN


def scalar_of(literal: Any) -> float | int | None:
    """The number that a constant or an attribute is, also as a tensor of one element; None where it is none."""
    if isinstance(literal, Number):
        literal = literal.value
    if isinstance(literal, TensorValue) and literal.type.size == 1:
        literal = numbers(literal.type, literal.data).item()
    return literal if isinstance(literal, (int, float)) and not isinstance(literal, bool) else None
