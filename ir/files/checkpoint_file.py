"""Checkpoints read without MindSpore: ``.safetensors``, and MindSpore's ``.ckpt``.

A ``.ckpt`` is a protobuf message of (name, tensor) pairs (MindSpore's ``checkpoint.proto``); large tensors come in
several pairs of one name. Values are mapped from the file, not copied, where they come in one piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.data import MappedFile
from ..core.errors import FormatError
from ..core.naming import printable
from ..core.types import MAX_RANK
from .protobuf import DELIMITED, VARINT, fields, read_varint

if TYPE_CHECKING:
    import numpy as np

VALUE, TAG, TENSOR = 1, 1, 2
TEXT = "str"
"""The type of notes beside the tensors, in UTF-32."""
DIMS, TYPE, CONTENT = 1, 2, 3
_DTYPES = {
    "Float16": "float16", "Float32": "float32", "Float64": "float64", "BFloat16": "bfloat16", "Bool": "bool",
    "Int8": "int8", "Int16": "int16", "Int32": "int32", "Int64": "int64",
    "UInt8": "uint8", "UInt16": "uint16", "UInt32": "uint32", "UInt64": "uint64",
}  # fmt: skip


def open_checkpoint(path: Path) -> dict[str, np.ndarray]:
    """Name -> array of every tensor in the file; bfloat16 as float32. FormatError for what is no such file."""
    if path.suffix != ".safetensors":
        return read_ckpt(path)[0]
    with _explained(path):
        return _read_safetensors(path)


def read_ckpt(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The tensors of a ``.ckpt`` file and the texts beside them, by name.

    MindSpore's own loader is not asked: it believes the dimensions that a file claims, and reads past the end of a
    shorter tensor (2.10).
    """
    with _explained(path):
        return _read_ckpt(path)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (FormatError, ValueError) as error:
        raise FormatError(f"{path}: no checkpoint that can be read: {printable(str(error))}") from None


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(path))
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise FormatError(str(error)) from None


def _read_ckpt(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    view = MappedFile(path).view()
    pieces: dict[str, list[memoryview]] = {}
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {}
    # A checksum of everything before it, which MindSpore puts there when asked to.
    end = len(view) - 17 if bytes(view[-17:-10]) == b"crc_num" else len(view)
    for number, wire_type, _, a, b in fields(view, 0, end):
        if number != VALUE or wire_type != DELIMITED:
            raise FormatError(f"byte {a}: not a list of tensors (encrypted?)")
        name, tensor = "", None
        for inner, kind, _, x, y in fields(view, a, b):
            if inner == TAG and kind == DELIMITED:
                name = bytes(view[x:y]).decode()
            elif inner == TENSOR and kind == DELIMITED:
                tensor = (x, y)
        if tensor is None:
            continue
        dims, type_, content = _tensor(view, *tensor)
        if kinds.setdefault(name, (type_, dims)) != (type_, dims):
            raise FormatError(f"the pieces of tensor '{name}' differ in type or shape")
        pieces.setdefault(name, []).append(content)
    texts = {name: b"".join(pieces[name]).decode("utf-32-le") for name, (type_, _) in kinds.items() if type_ == TEXT}
    return {name: _array(name, *kinds[name], parts) for name, parts in pieces.items() if name not in texts}, texts


def _array(name: str, type_: str, dims: tuple[int, ...], parts: list[memoryview]) -> np.ndarray:
    import numpy as np

    if type_ not in _DTYPES:
        raise FormatError(f"tensor '{name}' is of type '{type_}', which no weight has")
    is_brain = type_ == "BFloat16"
    dtype = np.dtype("<u2") if is_brain else np.dtype(_DTYPES[type_]).newbyteorder("<")
    content = parts[0] if len(parts) == 1 else b"".join(parts)
    shape = () if dims == (0,) and len(content) == dtype.itemsize else dims
    if len(shape) > MAX_RANK or prod(shape) * dtype.itemsize != len(content):
        shown = f"{type_}{list(shape[:MAX_RANK])}"
        raise FormatError(f"tensor '{name}' is {shown} but has {len(content)} bytes")
    array = np.frombuffer(content, dtype) if content else np.empty(0, dtype)
    if is_brain:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.reshape(shape)


def _tensor(view: memoryview, start: int, end: int) -> tuple[tuple[int, ...], str, memoryview]:
    dims: list[int] = []
    type_, content = "", view[:0]
    for number, kind, _, a, b in fields(view, start, end):
        if number == DIMS and kind == VARINT:
            dims.append(read_varint(view, a, b)[0])
        elif number == DIMS and kind == DELIMITED:  # packed
            while a < b:
                size, a = read_varint(view, a, b)
                dims.append(size)
        elif number == TYPE and kind == DELIMITED:
            type_ = bytes(view[a:b]).decode("utf-8", "replace")
        elif number == CONTENT and kind == DELIMITED:
            content = view[a:b]
    return tuple(dims), type_, content
