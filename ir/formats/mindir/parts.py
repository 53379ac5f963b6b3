"""The messages of a graph in the file: where its nodes, parameters, inputs and outputs lie."""

from __future__ import annotations

from typing import Any

from ...core.errors import FormatError
from ...files.protobuf import DELIMITED, fields
from . import schema as s


class Parts:
    """Where the parts of one GraphProto lie in the file."""

    def __init__(self, view: memoryview, start: int, end: int):
        self.nodes: list[tuple[int, int]] = []
        self.parameters: list[tuple[int, int]] = []
        self.inputs: list[tuple[int, int]] = []
        self.outputs: list[tuple[int, int]] = []
        maps: list[tuple[int, int]] = []
        places = {
            s.GRAPH_NODE: self.nodes, s.GRAPH_PARAMETER: self.parameters, s.GRAPH_INPUT: self.inputs,
            s.GRAPH_OUTPUT: self.outputs, s.GRAPH_MAP_PARAMETER: maps,
        }  # fmt: skip
        proto = s.GraphProto.FromString(divided(view, start, end, places, s.GRAPH_FIELDS, "a graph"))
        if maps:
            raise FormatError("the model has a MapParameter (a hash table as state), which is not supported")
        self.name = text(proto.name, "graph name")
        self.attributes = proto.attribute
        self.notes = {
            name: text(getattr(proto, name), name)
            for name in ("doc_string", "bprop_hash", "bprop_filepath")
            if proto.HasField(name)
        }


def divided(
    view: memoryview, start: int, end: int, places: dict[int, list[tuple[int, int]]], last: int, what: str
) -> bytes:
    """The fields of a message but for those in ``places``, where it notes from where to where their payloads go."""
    rest: list[bytes] = []
    for number, wire_type, at, a, b in fields(view, start, end):
        if number in places and wire_type == DELIMITED:
            places[number].append((a, b))
        elif number > last or number in places:
            raise FormatError(f"byte {at}: field {number} of {what} is unknown")
        else:
            rest.append(bytes(view[at:b]))
    return b"".join(rest)


def text(value: Any, what: str) -> str:
    """A string field; protobuf hands out bytes where the file holds no UTF-8."""
    if not isinstance(value, str):
        raise FormatError(f"{what}: the text {value!r} is not UTF-8; the file is damaged")
    return value
