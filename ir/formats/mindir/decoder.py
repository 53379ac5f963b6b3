"""The attributes of one file's nodes, decoded once where many nodes have them alike."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from ...core.attributes import Attribute, Opaque
from ...core.data import BytesData, Data, MappedData, MappedFile
from ...core.errors import FormatError
from ...core.types import UNKNOWN, Type
from ...files.protobuf import VARINT, tag, varint
from . import schema as s
from .codec import decode_type, decode_value, inline, inline_load
from .parts import text
from .wire import HERE

T = TypeVar("T", bound=Type)
_STRING = tag(s.ATTRIBUTE_TYPE, VARINT) + varint(s.AttributeKind["STRING"])


class Decoder:
    """Decodes attributes of messages of ``file``. ``large`` says that a message's tensor payloads were cut out."""

    def __init__(self, file: MappedFile):
        self._file = file
        self._types: dict[bytes, Type] = {}
        self._interned: dict[Type, Type] = {}
        self._node_types: dict[bytes, Type | None] = {}
        self._marks: dict[tuple[bytes, ...], Mapping[str, Attribute]] = {}
        self._names: dict[bytes, str] = {}

    def intern(self, type_: T) -> T:
        """The one object for all types equal to this one."""
        return self._interned.setdefault(type_, type_)  # type: ignore[return-value]  # equal types are of one class

    def type_(self, a: Any) -> Type:
        encoded = a.SerializeToString()
        known = self._types.get(encoded)
        if known is None:
            known = self._types[encoded] = self.intern(decode_type(a))
        return known

    def value_info(self, info: Any) -> Type:
        """The type of a graph's input or output."""
        if info.HasField("attr_info"):
            return self.type_(info.attr_info)
        if len(info.tensor) != 1:
            return UNKNOWN
        a = s.AttributeProto(type=s.AttributeKind["TENSORS"], tensors=[info.tensor[0]])
        a.tensors[0].ClearField("name")
        return self.type_(a)

    def attributes(self, protos: Any, what: str, large: bool = False) -> dict[str, Attribute]:
        out: dict[str, Attribute] = {}
        for a in protos:
            name = sys.intern(text(a.name, what))
            if name in out:
                raise FormatError(f"{what} has two attributes named '{name}'")
            out[name] = self.large_value(a) if large else decode_value(a)
        return out

    def node_type(self, encoded: bytes) -> Type | None:
        """The type that an encoded attribute of a node gives it; None if it is another attribute than "shape"."""
        try:
            return self._node_types[encoded]
        except KeyError:
            a = s.AttributeProto.FromString(encoded)
            found = self._node_types[encoded] = self.type_(a) if a.name == "shape" else None
            return found

    def encoded(self, attributes: Sequence[bytes], what: str, large: bool) -> dict[str, Attribute]:
        return self.attributes([s.AttributeProto.FromString(e) for e in attributes], what, large)

    def shared(self, encoded: Sequence[bytes], what: str, large: bool) -> Mapping[str, Attribute]:
        """Attributes that many nodes have alike: one mapping for all of them."""
        key = tuple(encoded)
        found = self._marks.get(key)
        if found is None:
            found = self._marks[key] = MappingProxyType(self.encoded(encoded, what, large))
        return found

    def primal(self, encoded: Sequence[bytes], what: str, large: bool) -> dict[str, Attribute]:
        """Attributes that each node has its own: short strings, nearly always."""
        out: dict[str, Attribute] = {}
        names = self._names
        for e in encoded:
            # Exactly a short name, a short string and the type, in this order: nothing that decoding could lose.
            a = e[1] + 2 if e[:1] == b"\n" and e[-3:] == _STRING else 0
            if not a or e[1] > 127 or e[a : a + 1] != b"*" or e[a + 1] > 127 or len(e) != a + e[a + 1] + 5:
                return self.encoded(encoded, what, large)
            name = names.get(e[2:a])
            if name is None:
                name = names[e[2:a]] = sys.intern(e[2:a].decode())
            if name in out:
                return self.encoded(encoded, what, large)
            try:
                out[name] = e[a + 2 : -3].decode()
            except UnicodeDecodeError:
                return self.encoded(encoded, what, large)
        return out

    def large_value(self, a: Any) -> Attribute:
        """Decodes an attribute whose tensor payloads were cut out."""

        def load(tensor: Any) -> Data:
            if not tensor.HasField("external_data"):
                return BytesData(tensor.raw_data)
            e = tensor.external_data
            if e.location != HERE:
                return inline_load(tensor)
            return MappedData(self._file, e.offset, e.length)

        def payload(tensor: Any, data: Data) -> None:
            if isinstance(data, MappedData):
                tensor.external_data.location = HERE
                tensor.external_data.offset = data.offset
                tensor.external_data.length = data.length
            else:
                inline(tensor, data)

        copy = s.AttributeProto.FromString(a.SerializeToString())
        value = decode_value(a, load, payload)
        if not isinstance(value, Opaque):
            return value
        self._restore(copy)
        return decode_value(copy)

    def _restore(self, a: Any) -> None:
        """Puts payloads that were cut out back in."""
        for tensor in [*a.tensors, *([a.t] if a.HasField("t") else [])]:
            if tensor.external_data.location == HERE:
                inline(tensor, MappedData(self._file, tensor.external_data.offset, tensor.external_data.length))
                tensor.ClearField("external_data")
        for value in a.values:
            self._restore(value)
