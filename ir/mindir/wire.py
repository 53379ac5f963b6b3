"""Protobuf's wire format, walked in place: large tensor payloads are cut out of a message before it is parsed.

:func:`elide` copies a message without the ``raw_data`` of its tensors; each such tensor instead carries an
``external_data`` whose location is :data:`HERE`: these bytes of this same file. So a mapped file of any size costs
memory only for its structure. Format: https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from functools import cache

from ..errors import FormatError
from . import schema as s

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
HERE = secrets.token_hex(16)
"""The location of a payload that was cut out. Another one in each process, so that no file can claim it."""
SMALL = 1024
"""Inner messages below this many bytes are copied as they are."""
MAX_DEPTH = 64
"""Deeper nesting than this is no file that an exporter wrote (protobuf itself stops at 100)."""

_CHILDREN: dict[str, dict[int, str]] = {
    "node": {s.NODE_ATTRIBUTE: "attribute", s.NODE_MARKS: "attribute", s.NODE_PRIMAL: "attribute"},
    "attribute": {s.ATTRIBUTE_T: "tensor", s.ATTRIBUTE_TENSORS: "tensor", s.ATTRIBUTE_VALUES: "attribute"},
    "tensor": {},
}


_SHORT = [bytes((value,)) for value in range(128)]


def varint(value: int) -> bytes:
    """``value`` (non-negative) as a base-128 varint."""
    if value < 128:
        return _SHORT[value]
    if value < 128 * 128:
        return bytes((value & 127 | 128, value >> 7))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


@cache
def tag(number: int, wire_type: int = DELIMITED) -> bytes:
    return varint(number << 3 | wire_type)


def delimited(number: int, payload: bytes) -> bytes:
    """A length-delimited field: string, bytes or message."""
    return tag(number) + varint(len(payload)) + payload


def text_field(number: int, text: str) -> bytes:
    return delimited(number, text.encode("utf-8", "surrogatepass"))


_HERE = text_field(s.EXTERNAL_LOCATION, HERE)
_OFFSET, _LENGTH = tag(s.EXTERNAL_OFFSET, VARINT), tag(s.EXTERNAL_LENGTH, VARINT)


def _read_varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise FormatError(f"byte {at}: a number longer than 64 bits")
    raise FormatError(f"byte {at}: the data ends inside a number")


def fields(view: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """The fields of the message in ``view[start:end]``: (number, wire type, start of the field, start and end of its
    payload). A FormatError with the byte offset on anything that no message can hold."""
    at = start
    while at < end:
        field_at = at
        key = view[at]
        at += 1
        if key > 127:
            key, at = _read_varint(view, field_at, end)
        wire_type = key & 7
        number = key >> 3
        if number == 0:
            raise FormatError(f"byte {field_at}: field number 0")
        if wire_type == DELIMITED:
            if at < end and view[at] < 128:
                length = view[at]
                at += 1
            else:
                length, at = _read_varint(view, at, end)
            stop = at + length
            if stop > end:
                raise FormatError(f"byte {field_at}: a field of {length} bytes reaches past the end of its message")
            yield number, wire_type, field_at, at, stop
            at = stop
        elif wire_type == VARINT:
            _, stop = _read_varint(view, at, end)
            yield number, wire_type, field_at, at, stop
            at = stop
        elif wire_type in (FIXED32, FIXED64):
            stop = at + (4 if wire_type == FIXED32 else 8)
            if stop > end:
                raise FormatError(f"byte {field_at}: the data ends inside a number")
            yield number, wire_type, field_at, at, stop
            at = stop
        else:
            raise FormatError(f"byte {field_at}: wire type {wire_type}, which MindIR does not use")


def elide(view: memoryview, start: int, end: int, kind: str, depth: int = 0) -> bytes:
    """A copy of the message of ``kind`` (node, attribute or tensor) without tensor payloads, which stay in the file."""
    if depth > MAX_DEPTH:
        raise FormatError(f"byte {start}: attributes nested more than {MAX_DEPTH} deep")
    children = _CHILDREN[kind]
    parts: list[bytes] = []
    kept = start
    raw: tuple[int, int] | None = None
    external = False
    for number, wire_type, at, a, b in fields(view, start, end):
        if wire_type != DELIMITED:
            continue
        child = children.get(number)
        if child is not None and b - a >= SMALL:
            inner = elide(view, a, b, child, depth + 1)
            parts += (bytes(view[kept:at]), delimited(number, inner))
            kept = b
        elif kind == "tensor" and number == s.TENSOR_RAW:
            parts.append(bytes(view[kept:at]))
            kept = b
            raw = (a, b - a)
        elif kind == "tensor" and number == s.TENSOR_EXTERNAL:
            external = True
            if not any(n == s.EXTERNAL_LOCATION and y > x for n, _, _, x, y in fields(view, a, b)):
                raise FormatError(f"byte {at}: external data without a location")
    parts.append(bytes(view[kept:end]))
    if raw is not None:
        if external:
            raise FormatError(f"byte {start}: a tensor with data both inside and outside of the file")
        place = _OFFSET + varint(raw[0]) + _LENGTH + varint(raw[1])
        parts.append(delimited(s.TENSOR_EXTERNAL, _HERE + place))
    return b"".join(parts)
