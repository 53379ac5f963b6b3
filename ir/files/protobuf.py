"""Protobuf's wire format, walked in place. Format: https://protobuf.dev/programming-guides/encoding."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from ..core.errors import FormatError

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5

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


def read_varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number, and where it ends."""
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
            key, at = read_varint(view, field_at, end)
        wire_type = key & 7
        number = key >> 3
        if number == 0:
            raise FormatError(f"byte {field_at}: field number 0")
        if wire_type == DELIMITED:
            if at < end and view[at] < 128:
                length = view[at]
                at += 1
            else:
                length, at = read_varint(view, at, end)
            stop = at + length
            if stop > end:
                raise FormatError(f"byte {field_at}: a field of {length} bytes reaches past the end of its message")
            yield number, wire_type, field_at, at, stop
            at = stop
        elif wire_type == VARINT:
            _, stop = read_varint(view, at, end)
            yield number, wire_type, field_at, at, stop
            at = stop
        elif wire_type in (FIXED32, FIXED64):
            stop = at + (4 if wire_type == FIXED32 else 8)
            if stop > end:
                raise FormatError(f"byte {field_at}: the data ends inside a number")
            yield number, wire_type, field_at, at, stop
            at = stop
        else:
            raise FormatError(f"byte {field_at}: wire type {wire_type}, which no file of ours uses")
