"""Values and tensor bytes as text, exactly: what :mod:`.literals` reads back has the same bits."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.attributes import STRUCT, MonadValue, Number, Opaque, TensorValue
from ..core.data import Data, ZeroData
from ..core.errors import FormatError
from ..core.naming import quote, spell
from ..core.types import DType, TensorType, Type

INLINE_BYTES = 64
"""Data up to this size stands in the line, larger data in the resource section."""
KEYED_BYTES = 256
"""Constants up to this size compare by their bytes (:func:`..attributes.bits`), so these are never elided."""

_DIGITS = {"e": range(3, 6), "f": range(6, 10)}
_NAN = struct.pack("<d", math.nan)


class Resources:
    """Big data met while printing, by content: equal bytes are written once."""

    def __init__(self) -> None:
        self.data: dict[str, Data] = {}
        self._digests: dict[str, str] = {}

    def key(self, data: Data) -> str:
        """The shortest of 16 and 64 hex digits of the sha256 that tells this data from what came before."""
        digest = data.digest()
        short = digest[:16]
        key = short if self._digests.setdefault(short, digest) == digest else digest
        self.data.setdefault(key, data)
        return key

    def lines(self) -> list[str]:
        if not self.data:
            return []
        entries = [f'  sha256:{k} "{base64.b64encode(d.view()).decode("ascii")}"' for k, d in self.data.items()]
        return ["resources {", *entries, "}"]


class Spelling:
    """Spells values; ``resources`` collects big data, None elides it."""

    def __init__(self, resources: Resources | None = None):
        self.resources = resources

    def value(self, value: Any) -> str:
        """An attribute value; also a mapping of names to values, or a type (both occur in a file's notes)."""
        if value is True:
            return "true"
        if value is False:
            return "false"
        if value is None:
            return "none"
        if isinstance(value, DType):
            return f"type<{value}>"
        if isinstance(value, int):
            return str(int(value))
        if isinstance(value, float):
            return single(value)
        if isinstance(value, str):
            return quote(value)
        if isinstance(value, bytes):
            return _bytes(value)
        if isinstance(value, tuple):
            return f"({self._sequence(value)}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{self._sequence(value)}]"
        if isinstance(value, Number):
            spelled = double(value.value) if isinstance(value.value, float) else self.value(value.value)
            return f"{value.dtype}<{spelled}>"
        if isinstance(value, TensorValue):
            return f"{value.type}<{self.data(value.type, value.data)}>"
        if isinstance(value, MonadValue):
            return value.kind
        if isinstance(value, Opaque):
            return f"opaque<{value.encoded.hex()}>"
        if isinstance(value, Mapping):
            return self.mapping(value)
        if isinstance(value, Type):
            return f"type<{value}>"
        raise FormatError(f"a {type(value).__name__} has no text form: {value!r}")

    def _sequence(self, values: Sequence[Any]) -> str:
        return ", ".join([self.value(v) for v in values])

    def mapping(self, values: Mapping[str, Any]) -> str:
        return "{" + ", ".join([f"{spell(k)} = {self.value(v)}" for k, v in values.items()]) + "}"

    def data(self, type_: TensorType, data: Data, *, hashed: bool = True) -> str:
        """The text between ``<`` and ``>`` after a tensor type. ``hashed``: whether elided data shows its hash."""
        n = data.nbytes
        if isinstance(data, ZeroData) and n > 16:
            return _zeros(type_, n)
        inline = INLINE_BYTES if self.resources is not None or not hashed else KEYED_BYTES
        if n > inline:
            if self.resources is None:
                return f"elided {n}" + (f" sha256:{data.digest()[:16]}" if hashed else "")
            return _zeros(type_, n) if data.is_zero() else f"sha256:{self.resources.key(data)}"
        raw = bytes(data.view())
        if n > 16 and not any(raw):
            return _zeros(type_, n)
        return elements(type_, raw) or "0x" + raw.hex()


def elements(type_: TensorType, raw: bytes) -> str:
    """The element values, exactly; empty where numbers cannot say it (or there is nothing to say): hex bytes do."""
    code = STRUCT.get(type_.dtype)
    if code is None or not type_.is_static or len(raw) != type_.nbytes:
        return ""
    layout = f"<{type_.size}{code}"
    values = struct.unpack(layout, raw)
    if code == "?":
        return ", ".join("true" if v else "false" for v in values) if set(raw) <= {0, 1} else ""
    if struct.pack(layout, *values) != raw:
        return ""
    if code in "efd":
        if any(v != v and struct.pack("<" + code, v) != struct.pack("<" + code, math.nan) for v in values):
            return ""
        return ", ".join([_float(v, code) for v in values])
    return ", ".join(map(str, values))


def single(value: float) -> str:
    """A float attribute: the shortest decimal of its float32; with the suffix ``d`` where it is no float32."""
    if value != value or math.isinf(value):
        return double(value)
    try:
        narrow = struct.unpack("<f", struct.pack("<f", value))[0] == value
    except OverflowError:
        narrow = False
    return _float(value, "f") if narrow else repr(value) + "d"


def double(value: float) -> str:
    """The shortest decimal of a float64; a NaN that is not the usual one by its bits."""
    if value != value:
        raw = struct.pack("<d", value)
        return "nan" if raw == _NAN else f"nan<0x{raw[::-1].hex()}>"
    return repr(value)


def _float(value: float, code: str) -> str:
    for digits in _DIGITS.get(code, ()):
        text = f"{value:.{digits}g}"
        try:
            same = struct.pack("<" + code, float(text)) == struct.pack("<" + code, value)
        except OverflowError:  # rounded up past the largest finite value
            continue
        if same:
            return text if any(c in text for c in ".ein") else text + ".0"
    return repr(value)


def _zeros(type_: TensorType, n: int) -> str:
    return "zeros" if n == type_.nbytes else f"zeros {n}"


def _bytes(value: bytes) -> str:
    out = []
    for byte in value:
        char = chr(byte)
        out.append(f"\\{char}" if char in '"\\' else char if 32 <= byte < 127 else f"\\x{byte:02x}")
    return f'b"{"".join(out)}"'
