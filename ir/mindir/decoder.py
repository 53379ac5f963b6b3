"""The attributes of one file's nodes, decoded once where many nodes have them alike."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..attributes import Attribute, Opaque
from ..data import BytesData, Data, MappedData, MappedFile
from ..errors import FormatError
from ..types import UNKNOWN, Type
from . import schema as s
from .codec import decode_type, decode_value, inline, inline_load
from .parts import text
from .wire import HERE


class Decoder:
    """Decodes attributes of messages of ``file``. ``large`` says that a message's tensor payloads were cut out."""

    def __init__(self, file: MappedFile):
        self._file = file
        self._types: dict[bytes, Type] = {}
        self._interned: dict[Type, Type] = {}
        self._marks: dict[bytes, Mapping[str, Attribute]] = {}

    def intern(self, type_: Type) -> Type:
        """The one object for all types equal to this one."""
        return self._interned.setdefault(type_, type_)

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

    def shared(self, protos: Any, what: str, large: bool) -> Mapping[str, Attribute]:
        """Attributes that many nodes have alike: one mapping for all of them."""
        key = b"".join([a.SerializeToString() for a in protos])
        found = self._marks.get(key)
        if found is None:
            found = self._marks[key] = MappingProxyType(self.attributes(protos, what, large))
        return found

    def primal(self, protos: Any, what: str, large: bool) -> dict[str, Attribute]:
        out: dict[str, Attribute] = {}
        for a in protos:
            if a.type == s.AttributeKind["STRING"] and a.ByteSize() == len(a.name) + len(a.s) + 7 and a.name not in out:
                # Exactly a name, a short string and the type: nothing that decoding could lose.
                try:
                    out[sys.intern(a.name)] = a.s.decode()
                    continue
                except (UnicodeDecodeError, TypeError):
                    pass
            return self.attributes(protos, what, large)
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
