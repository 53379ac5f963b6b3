"""Damage: to bytes of any kind, and to the structure of what is valid: protobuf messages, JSON, text."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from boost_compile.ir.formats.mindir import schema as s
from google.protobuf.message import DecodeError, EncodeError

Mutate = Callable[[bytes, Random], bytes]

NUMBERS = (0, 1, -1, 2, 7, 127, 128, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, -(2**31), -(2**63))
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, 3.4e38, float("inf"), float("-inf"), float("nan"))
WORDS = (
    "", ".", "..", "../../x", "/etc/passwd", "a/../../d", "link/data", "C:\\x", "data_0", "x\0y", "a\nb",
    "\x1b[2J\x1b]0;t\x07", "</script><script>alert(1)</script>", '"', "'", "\\", "%s%n", "{{7*7}}", "[/bold]", "[red]",
    ":smile:", "\u202e\u2028",
    "é" * 20, "a" * 300, "a/" * 400, "step", "w", "Default", "umonad", "unknown", "shape", "value", "REF::", "Switch",
    "Partial", "MakeTuple", "TupleGetItem", "UpdateState", "Load", "Depend", "Return", "nan", "none",
)  # fmt: skip
ROUNDS = 4


def damaged(data: bytes, random: Random, others: Sequence[bytes] = ()) -> bytes:
    """Bits flipped; bytes replaced, inserted, dropped, repeated; numbers written over; pieces of ``others`` put in."""
    out = bytearray(data)
    for _ in range(random.randint(1, ROUNDS)):
        at = random.randrange(len(out) + 1)
        length = min(int(2 ** random.uniform(0, 10)), len(out) - at)
        kind = random.randrange(8)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << random.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = random.choice((0, 1, 9, 10, 34, 47, 92, 127, 128, 255, random.randrange(256)))
        elif kind == 2:
            del out[at : at + length]
        elif kind == 3:
            out[at:at] = out[at : at + length] * random.choice((1, 1, 2, 50))
        elif kind == 4:
            number = struct.pack("<q", random.choice(NUMBERS))[: random.choice((1, 2, 4, 8))]
            out[at : at + len(number)] = number
        elif kind == 5 and random.random() < 0.2:
            del out[at:]
        elif kind == 6 and others:
            other = random.choice(others)
            start = random.randrange(len(other) + 1)
            out[at : at + random.choice((0, length))] = other[start : start + length]
        elif kind == 7:
            end = random.randrange(len(out) + 1)
            out[at:at] = out[end : end + length]
    return bytes(out)


# -- protobuf messages ------------------------------------------------------------------------------------------------


def mindir(data: bytes, random: Random) -> bytes:
    """A MindIR whose messages are changed: fields set, repeated, dropped, exchanged, nested in themselves."""
    return _message(s.ModelProto(), data, random)


def onnx(data: bytes, random: Random) -> bytes:
    """The same with an ONNX model."""
    from onnx import ModelProto

    return _message(ModelProto(), data, random)


def _message(model: Any, data: bytes, random: Random) -> bytes:
    try:
        model.MergeFromString(data)
    except DecodeError:
        return damaged(data, random)
    try:
        for _ in range(random.randint(1, ROUNDS)):
            messages = _messages(model)
            _change(random.choice(messages), messages, random)
        return bytes(model.SerializePartialToString())
    except (DecodeError, EncodeError, ValueError, RecursionError):  # nested deeper than this library goes
        return data


def _messages(root: Any) -> list[Any]:
    """Every message; those of which there are few (a graph among its nodes) come up more often."""
    found: dict[str, list[Any]] = {}
    pending = [root]
    while pending:
        message = pending.pop()
        found.setdefault(message.DESCRIPTOR.name, []).append(message)
        for field, value in message.ListFields():
            if field.message_type is not None:
                pending.extend(value if _is_repeated(field) else [value])
    most = max(map(len, found.values()))
    return [m for group in found.values() for m in group * max(1, most // (4 * len(group)))]


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def _change(message: Any, messages: list[Any], random: Random) -> None:
    present = [field for field, _ in message.ListFields()]
    field = random.choice(present if present and random.random() < 0.8 else message.DESCRIPTOR.fields)
    name, inner = field.name, field.message_type
    if _is_repeated(field):
        values = getattr(message, name)
        kind = random.randrange(5)
        if kind == 0 and values:
            del values[random.randrange(len(values))]
        elif kind == 1 and values:
            values.extend([values[random.randrange(len(values))]] * random.choice((1, 1, 1, 40)))
        elif kind == 2 and len(values) > 1:
            kept = list(values)
            if inner is not None:
                kept = [type(v).FromString(v.SerializePartialToString()) for v in kept]
            random.shuffle(kept)
            del values[:]
            values.extend(kept)
        elif inner is not None:
            values.add().MergeFromString(_another(inner, messages, random))
        elif values:
            values[random.randrange(len(values))] = _scalar(field, messages, random)
        else:
            values.append(_scalar(field, messages, random))
    elif random.random() < 0.15:
        message.ClearField(name)
    elif inner is not None:
        getattr(message, name).MergeFromString(_another(inner, messages, random))
    elif field.enum_type is not None:
        setattr(message, name, random.choice(field.enum_type.values).number)
    else:
        setattr(message, name, _scalar(field, messages, random))


def _another(kind: Any, messages: list[Any], random: Random) -> bytes:
    """A message of this kind from elsewhere in the file; an attribute now and then deep in attributes."""
    found = [m for m in messages if m.DESCRIPTOR.name == kind.name]
    encoded = random.choice(found).SerializePartialToString() if found else b""
    if kind.full_name == "mind_ir.AttributeProto" and random.random() < 0.1:
        for _ in range(random.choice((5, 40, 80, 120))):
            outer = s.AttributeProto(type=s.AttributeKind["TUPLE"]).SerializeToString()
            length = s.AttributeProto(s=encoded).SerializeToString()[1:]  # the length, then the message
            encoded = outer + b"\x8a\x01" + length
    return bytes(encoded)


def _scalar(field: Any, messages: list[Any], random: Random) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        text = _word(messages, random)
        return text if field.type == field.TYPE_STRING else text.encode("utf-8", "replace")
    if field.cpp_type == field.CPPTYPE_BOOL:
        return random.random() < 0.5
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return random.choice(REALS)
    number = random.choice(NUMBERS) if random.random() < 0.7 else random.randint(-2, 50)
    bits = 32 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32, field.CPPTYPE_ENUM) else 64
    signed = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
    number %= 2**bits
    return number - 2**bits if signed and number >= 2 ** (bits - 1) else number


def _word(messages: list[Any], random: Random) -> str:
    """A hostile word, or a name that stands elsewhere: operands and functions that exist, but not for this place."""
    if random.random() < 0.5:
        return random.choice(WORDS)
    for _ in range(10):
        values = [v for f, v in random.choice(messages).ListFields() if f.type == f.TYPE_STRING]
        texts = [t for v in values for t in ([v] if isinstance(v, str) else v)]
        if texts:
            return str(random.choice(texts))
    return "main"


# -- JSON --------------------------------------------------------------------------------------------------------------


def document(data: bytes, random: Random) -> bytes:
    """A JSON document with values replaced, exchanged, dropped and nested."""
    try:
        root = json.loads(data)
    except (ValueError, RecursionError):
        return damaged(data, random)
    try:
        for _ in range(random.randint(1, ROUNDS)):
            _change_value(root, random)
        return json.dumps(root).encode()
    except (ValueError, RecursionError):
        return data


def _change_value(root: Any, random: Random) -> None:
    places = _places(root)
    if places:
        container, key = random.choice(places)
        kind = random.randrange(6)
        if kind == 0:
            del container[key]
        elif kind == 1:
            holder, other = random.choice(places)
            container[key] = json.loads(json.dumps(holder[other])) if holder[other] is not container else None
        elif kind == 2 and isinstance(container, dict):
            container[random.choice([*WORDS, "\ud800"])] = container.pop(key)
        elif kind == 3:
            deep: Any = container[key]
            for _ in range(random.choice((1, 3, 200, 900))):
                deep = [deep] if random.random() < 0.5 else {"a": deep}
            container[key] = deep
        else:
            container[key] = random.choice(
                [*NUMBERS, *REALS, *WORDS, "\ud800", 10**400, None, True, False, [], {}, [0] * 50, {"a": 1}]
            )


def _places(root: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    pending = [root]
    while pending:
        value = pending.pop()
        if isinstance(value, (dict, list)):
            keys = list(value) if isinstance(value, dict) else range(len(value))
            found.extend((value, key) for key in keys)
            pending.extend(value.values() if isinstance(value, dict) else value)
    return found


def header(data: bytes, random: Random) -> bytes:
    """A safetensors file whose header, a JSON document behind its length, is changed."""
    length = int.from_bytes(data[:8], "little")
    changed = document(data[8 : 8 + length], random)
    size = length if random.random() < 0.1 else len(changed)
    return struct.pack("<Q", size) + changed + data[8 + length :]


# -- text --------------------------------------------------------------------------------------------------------------

_TOKENS = re.compile(rb'"(?:[^"\\\n]|\\.)*"|[%@]?[A-Za-z0-9_.$]+|\s+|.', re.DOTALL)
_TEXTS = (
    b"9" * 5000, b"-1", b"1e999", b"nan", b"0x", b"99999999999999999999", b"(" * 150, b"[" * 2000, b"{" * 150,
    b'"\\ud800"',
    b'"\\x1b[2J"', b'"\\n"', b'"../../x"', b"float32[-1]", b"float32[9999999999,9999999999]", b"<zeros 99999999999999>",
    b"<zeros>", b"bool<7>", b"int32<1.5>", b"string<1>", b"opaque<00>", b"type<umonad>", b"b\"\\xff\"", b"none",
    b"true",
    b"\xff", b"//", b"\n", b"\r", b"\0", b"?", b"*", b"!", b"}", b"{", b")",
    b"(", b",", b"=", b"<", b">",
)  # fmt: skip


def text(data: bytes, random: Random) -> bytes:
    """A text with its tokens replaced, exchanged, dropped and repeated, its lines too."""
    split = _TOKENS.findall(data) if random.random() < 0.8 else data.splitlines(keepends=True)
    if not split:
        return random.choice(_TEXTS)
    for _ in range(random.randint(1, ROUNDS)):
        at, other = random.randrange(len(split)), random.randrange(len(split))
        kind = random.randrange(6)
        if kind == 0:
            split[at] = split[other]
        elif kind == 1:
            split[at], split[other] = split[other], split[at]
        elif kind == 2 and len(split) > 1:
            del split[at]
        elif kind == 3:
            split.insert(at, split[other])
        elif kind == 4:
            split[at] = random.choice(_TEXTS)
        else:
            split[at] = str(random.choice((*NUMBERS, *REALS))).encode()
    return b"".join(split)
