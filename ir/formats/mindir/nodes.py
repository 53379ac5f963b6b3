"""A NodeProto taken apart. Its attributes stay encoded: most of them are alike, and the decoder knows them already."""

from __future__ import annotations

from ...files.protobuf import DELIMITED, fields
from . import schema as s
from .wire import elide

LARGE = 16 * 1024
"""Messages longer than this are read without the payloads of their tensors."""
RawNode = tuple[list[bytes], list[bytes], bytes, bytes, list[bytes], list[bytes], list[bytes]]
"""Inputs, outputs, op_type, domain; then, each an encoded AttributeProto: attributes, marks, primal marks."""

_INPUT, _OUTPUT, _OP, _DOMAIN = (n << 3 | DELIMITED for n in (s.NODE_INPUT, s.NODE_OUTPUT, s.NODE_OP, s.NODE_DOMAIN))
_ATTRIBUTE, _MARKS, _PRIMAL = (n << 3 | DELIMITED for n in (s.NODE_ATTRIBUTE, s.NODE_MARKS, s.NODE_PRIMAL))
_NAME = s.NODE_NAME << 3 | DELIMITED


def raw_node(view: memoryview, start: int, end: int) -> RawNode:
    """The parts of the NodeProto in ``view[start:end]``. A FormatError with the byte offset if it is no message."""
    if end - start > LARGE:
        message = elide(view, start, end, "node")
        return _walked(memoryview(message), 0, len(message))
    found = _short(bytes(view[start:end]))
    return _walked(view, start, end) if found is None else found


def _short(message: bytes) -> RawNode | None:
    """As :func:`_walked`, three times as fast, for messages of short fields that are known; None for others."""
    inputs: list[bytes] = []
    outputs: list[bytes] = []
    attributes: list[bytes] = []
    marks: list[bytes] = []
    primal: list[bytes] = []
    op = domain = b""
    at, end = 0, len(message)
    try:
        while at < end:
            key = message[at]
            length = message[at + 1]
            at += 2
            if length > 127:
                if message[at] > 127:
                    return None
                length += (message[at] << 7) - 128
                at += 1
            stop = at + length
            payload = message[at:stop]
            at = stop
            if key == _INPUT:
                inputs.append(payload)
            elif key == _PRIMAL:
                primal.append(payload)
            elif key == _ATTRIBUTE:
                attributes.append(payload)
            elif key == _OP:
                op = payload
            elif key == _DOMAIN:
                domain = payload
            elif key == _OUTPUT:
                outputs.append(payload)
            elif key == _MARKS:
                marks.append(payload)
            elif key != _NAME:
                return None
    except IndexError:
        return None
    return (inputs, outputs, op, domain, attributes, marks, primal) if at == end else None


def _walked(view: memoryview, start: int, end: int) -> RawNode:
    found: dict[int, list[bytes]] = {number: [] for number in range(1, s.NODE_FIELDS + 1)}
    for number, wire_type, _, a, b in fields(view, start, end):
        if wire_type == DELIMITED and number in found:
            found[number].append(bytes(view[a:b]))
    # Of a field that holds one value, the last one counts.
    return (
        found[s.NODE_INPUT],
        found[s.NODE_OUTPUT],
        (found[s.NODE_OP] or [b""])[-1],
        (found[s.NODE_DOMAIN] or [b""])[-1],
        found[s.NODE_ATTRIBUTE],
        found[s.NODE_MARKS],
        found[s.NODE_PRIMAL],
    )
