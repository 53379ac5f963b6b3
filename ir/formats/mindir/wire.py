"""Large tensor payloads are cut out of a message of MindIR before it is parsed.

:func:`elide` copies a message without the ``raw_data`` of its tensors; each such tensor instead carries an
``external_data`` whose location is :data:`HERE`: these bytes of this same file. So a mapped file of any size costs
memory only for its structure.
"""

from __future__ import annotations

import secrets

from ...core.errors import FormatError
from ...files.protobuf import DELIMITED, VARINT, delimited, fields, tag, text_field, varint
from . import schema as s

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


_HERE = text_field(s.EXTERNAL_LOCATION, HERE)
_OFFSET, _LENGTH = tag(s.EXTERNAL_OFFSET, VARINT), tag(s.EXTERNAL_LENGTH, VARINT)


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
