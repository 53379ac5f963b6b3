"""Reads types, attribute values and tensor bytes: the inverse of :mod:`.spelling` and of ``str`` of a type."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from typing import Any

from ..core.attributes import STRUCT, MonadValue, Number, Opaque, TensorValue
from ..core.data import BytesData, Data, ZeroData
from ..core.errors import FormatError
from ..core.naming import BARE_NAME
from ..core.types import (
    MAX_RANK,
    SIMPLE_TYPES,
    DType,
    FunctionType,
    OpaqueType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
)
from ..core.wording import counted
from .scanner import Scanner

_DTYPES = {d.value: d for d in DType}
_PLAIN_TENSOR = re.compile(r"([a-z]+[0-9]*)\[([0-9?,\- ]*)\](in\[[0-9?,\- ]*\]\.\.\[[0-9?,\- ]*\])?(@)?")
_NUMBER = re.compile(r"-?(?:inf\b|nan\b|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)")
_BITS = re.compile(r"<0x([0-9a-f]{16})>")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")
_DIGEST = re.compile(r"sha256:([0-9a-f]{16,64})")
_COUNT = re.compile(r"[0-9]+")
_TEXT_ENTRY = re.compile(rf'[ \t\r\n]*({BARE_NAME})[ \t]*=[ \t]*"([^"\\\n]*)"[ \t]*([,}}])')
_LITERAL_WORDS = {"true": True, "false": False, "none": None}


class ElidedData(Data):
    """Stands for bytes that a text printed without resources left out: known by size and hash, an error when needed."""

    __slots__ = ("_nbytes", "key")

    def __init__(self, nbytes: int, key: str):
        self._nbytes = nbytes
        self.key = key

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def view(self) -> memoryview:
        raise FormatError(
            f"the text form that was read elides {self._nbytes} bytes of data: print it with resources to keep them"
        )

    def digest(self) -> str:
        return self.key or super().digest()


class LiteralScanner(Scanner):
    """``resources``: the bytes of the text's resource section by their key (see :meth:`load_resources`)."""

    def __init__(self, text: str, source: str = "text"):
        super().__init__(text, source)
        self.resources: dict[str, Data] = {}
        self._types: dict[str, TensorType] = {}

    # -- types -----------------------------------------------------------------------------------------------

    def type(self) -> Type:
        match = self.match(_PLAIN_TENSOR)
        if match:
            return self._tensor_type(match)
        if self.peek("("):
            return self._tuple_type("(", ")", False)
        if self.peek("["):
            return self._tuple_type("[", "]", True)
        at = self.pos
        word = self.peek_word()
        self.pos += len(word)
        if word in ("fn", "union"):
            self.expect("<")
            names = [self.marked_name("@", "a function's name") for _ in self.listed(">")]
            return FunctionType(tuple(names), word == "union")
        if word == "opaque":
            return OpaqueType(self._encoded())
        if word in SIMPLE_TYPES:
            return SIMPLE_TYPES[word]
        if word in _DTYPES:
            return ScalarType(_DTYPES[word])
        self.pos = at
        raise self.error(
            f"expected a type (such as float32[2,3], int64, (float32[2], bool), umonad, fn<@f>), found {self.found()}"
        )

    def _tensor_type(self, match: re.Match[str]) -> TensorType:
        text = match.group()
        known = self._types.get(text)
        if known is None:
            word, dims, bounds, ref = match.groups()
            dtype = _DTYPES.get(word)
            if dtype is None:
                raise self.error(f"unknown element type '{word}' (known: {', '.join(_DTYPES)})", match.start())
            low, high = bounds[3:-1].split("]..[") if bounds else ("", "")
            shape, low_shape, high_shape = (self._dims(d, match.start()) for d in (dims, low, high))
            known = TensorType(dtype, shape, "", low_shape, high_shape)
            if ref:
                return TensorType(dtype, shape, self.name("the name of the state it aliases"), low_shape, high_shape)
            self._types[text] = known
        return known

    def _dims(self, text: str, at: int) -> tuple[int, ...]:
        if not text.strip():
            return ()
        try:
            dims = tuple(-1 if d.strip() == "?" else int(d) for d in text.split(","))
        except ValueError:
            dims = (2**63,)
        if len(dims) > MAX_RANK or not all(-(2**63) <= d < 2**63 for d in dims):
            shown = text if len(text) <= 40 else f"{text[:40]}…"
            raise self.error(
                f"'{shown}' is no shape: expected at most {MAX_RANK} dimensions such as 2,3 with ? for unknown ones", at
            )
        return dims

    def _tuple_type(self, left: str, right: str, is_list: bool) -> TupleType:
        self.expect(left)
        self.enter()
        elements = [self.type() for _ in self.listed(right)]
        self.leave()
        dynamic = None
        if self.text.startswith("!", self.pos) or self.text.startswith("*", self.pos):
            dynamic = self.text[self.pos] == "*"
            self.pos += 1
        return TupleType(tuple(elements), is_list, dynamic)

    # -- values ----------------------------------------------------------------------------------------------

    def value(self) -> Any:
        self.skip()
        char = self.text[self.pos : self.pos + 1]
        if char == '"':
            return self.string()
        if char == "(":
            return self._tuple()
        if char == "[":
            return self._sequence("[", "]")
        if char == "{":
            return self.mapping()
        if self.text.startswith('b"', self.pos):
            self.pos += 1
            return self.quoted_bytes()
        number = _NUMBER.match(self.text, self.pos)
        if number:
            return self._number(exact=False)
        return self._word()

    def _tuple(self) -> tuple[Any, ...]:
        at = self.pos
        values = self._sequence("(", ")")
        if len(values) == 1 and not self.trailing:
            raise self.error("a tuple of one value is written with a comma: (value,)", at)
        return tuple(values)

    def _sequence(self, left: str, right: str) -> list[Any]:
        self.expect(left)
        self.enter()
        values = [self.value() for _ in self.listed(right)]
        self.leave()
        return values

    def mapping(self) -> dict[str, Any]:
        """``{name = value, …}``."""
        self.expect("{")
        self.enter()
        values: dict[str, Any] = {}
        while entry := _TEXT_ENTRY.match(self.text, self.pos):  # as most of a file's notes are
            key, text, closing = entry.groups()
            if key in values:
                raise self.error(f"'{key}' is given twice", entry.start(1))
            values[key] = text
            self.pos = entry.end()
            if closing == "}":
                self.leave()
                return values
        for _ in self.listed("}"):
            at = self.pos
            key = self.name("a name")
            if key in values:
                raise self.error(f"'{key}' is given twice", at)
            self.expect("=", f"after '{key}'")
            values[key] = self.value()
        self.leave()
        return values

    def _number(self, exact: bool) -> int | float:
        """``exact``: as float64 (inside a typed scalar); else decimals are float32 unless they end in ``d``."""
        match = self.match(_NUMBER)
        if match is None:
            raise self.error(f"expected a number, found {self.found()}")
        text = match.group()
        if text == "nan":
            payload = _BITS.match(self.text, self.pos)
            if payload:
                self.pos = payload.end()
                value: float = struct.unpack(">d", bytes.fromhex(payload.group(1)))[0]
                return value
        if text.lstrip("-").isdigit() and not self.text.startswith("d", self.pos):
            return self.whole(text, match.start())
        number = float(text)
        if self.text.startswith("d", self.pos):
            self.pos += 1
            return number
        if exact:
            return number
        try:
            narrow: float = struct.unpack("<f", struct.pack("<f", number))[0]
        except OverflowError:
            raise self.error(f"{text} does not fit a float32 (write {text}d for a float64)", match.start()) from None
        return narrow

    def whole(self, digits: str, at: int) -> int:
        """A whole number. The longest that any format here holds has 20 digits; Python refuses very long ones."""
        if len(digits) > 4000:
            raise self.error(f"a number of {len(digits)} digits", at)
        return int(digits)

    def _word(self) -> Any:
        at = self.pos
        word = self.peek_word()
        self.pos += len(word)
        if word in _LITERAL_WORDS:
            return _LITERAL_WORDS[word]
        if word in ("umonad", "iomonad"):
            return MonadValue(word)
        if word == "opaque":
            return Opaque(self._encoded())
        if word == "type":
            self.expect("<")
            type_ = self.type()
            self.expect(">")
            return type_.dtype if isinstance(type_, ScalarType) else type_
        self.pos = at
        if word in _DTYPES:
            type_ = self.type()
            if isinstance(type_, TensorType):
                self.expect("<", "before the elements of a tensor")
                return TensorValue(type_, self.data(type_))
            if isinstance(type_, ScalarType):
                return self._typed_scalar(type_.dtype)
            self.pos = at
        raise self.error(
            f'expected a value (1, 0.5, "text", true, none, (…), […], float32[2]<…>, …), found {self.found()}'
        )

    def _typed_scalar(self, dtype: DType) -> Number:
        self.expect("<", f"after '{dtype}'")
        number = self._element()
        self.expect(">")
        return Number(dtype, number)

    def _element(self) -> int | float:
        truth = self.truth()
        return self._number(exact=True) if truth is None else truth

    def _encoded(self) -> bytes:
        self.expect("<", "after 'opaque'")
        encoded = self._hex()
        self.expect(">", "after hex digits")
        return encoded

    def _hex(self) -> bytes:
        match = self.match(_HEX)
        return bytes.fromhex(match.group()) if match else b""

    # -- tensor bytes ----------------------------------------------------------------------------------------

    def data(self, type_: TensorType) -> Data:
        """The bytes of a tensor, up to and with the closing ``>``."""
        at = self.pos
        data = self._data(type_, at)
        self.expect(">", "after the elements of a tensor")
        return data

    def _data(self, type_: TensorType, at: int) -> Data:
        if self.accept_word("zeros"):
            count = self.match(_COUNT)
            return self.zeros(self.whole(count.group(), at) if count else type_.nbytes, at)
        if self.accept_word("elided"):
            count, digest = self.match(_COUNT), self.match(_DIGEST)
            size = self.whole(count.group(), at) if count else type_.nbytes
            return ElidedData(size, digest.group(1) if digest else "")
        if self.accept("0x"):
            return BytesData(self._hex())
        digest = self.match(_DIGEST)
        if digest:
            found = self.resources.get(digest.group(1))
            if found is None:
                raise self.error(f"the resource section holds no {digest.group()}", digest.start())
            return found
        return BytesData(self._elements(type_, at))

    def zeros(self, nbytes: int, at: int) -> ZeroData:
        try:
            return ZeroData(nbytes)
        except FormatError as error:
            raise self.error(str(error), at) from None

    def _elements(self, type_: TensorType, at: int) -> bytes:
        code = STRUCT.get(type_.dtype)
        if code is None:
            raise self.error(f"the elements of a {type_.dtype} tensor are written as hex bytes: <0x…>", at)
        if not type_.is_static:
            raise self.error(f"type {type_} has unknown dimensions, so its data cannot be written out", at)
        values: list[Any] = []
        while not self.peek(">"):
            values.append(self._element())
            if not self.accept(","):
                break
        if len(values) != type_.size:
            raise self.error(
                f"{counted(len(values), 'element')} for a tensor of type {type_}, which has {type_.size}", at
            )
        try:
            return struct.pack(f"<{len(values)}{code}", *values)
        except (struct.error, OverflowError) as e:
            raise self.error(f"an element does not fit {type_.dtype}: {e}", at) from None

    def load_resources(self, start: int) -> int:
        """Reads the section ``resources { sha256:KEY "base64" … }`` at ``start``; returns where it ends."""
        saved, self.pos = self.pos, start
        self.expect("resources")
        self.expect("{")
        while not self.peek("}"):
            digest = self.match(_DIGEST)
            if digest is None:
                raise self.error(f"expected 'sha256:…' or the end of the resource section, found {self.found()}")
            at = self.pos
            try:
                data = BytesData(base64.b64decode(self.string(), validate=True))
            except (binascii.Error, ValueError):
                raise self.error("this is no base64 text", at) from None
            if not data.digest().startswith(digest.group(1)):
                raise self.error(
                    f"the bytes of resource {digest.group()} do not have that hash: the text was damaged", at
                )
            self.resources[digest.group(1)] = data
        self.expect("}")
        end, self.pos = self.pos, saved
        return end
