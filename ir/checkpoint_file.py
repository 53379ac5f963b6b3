"""Checkpoints read without MindSpore: ``.safetensors``, and MindSpore's ``.ckpt``.

A ``.ckpt`` is a protobuf message of (name, tensor) pairs (MindSpore's ``checkpoint.proto``); large tensors come in
several pairs of one name. Values are mapped from the file, not copied, where they come in one piece.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .data import MappedFile
from .errors import FormatError
from .mindir.wire import DELIMITED, VARINT, fields

if TYPE_CHECKING:
    import numpy as np

VALUE, TAG, TENSOR = 1, 1, 2
DIMS, TYPE, CONTENT = 1, 2, 3
_DTYPES = {
    "Float16": "float16", "Float32": "float32", "Float64": "float64", "BFloat16": "bfloat16", "Bool": "bool",
    "Int8": "int8", "Int16": "int16", "Int32": "int32", "Int64": "int64",
    "UInt8": "uint8", "UInt16": "uint16", "UInt32": "uint32", "UInt64": "uint64",
}  # fmt: skip


def open_checkpoint(path: Path) -> dict[str, np.ndarray]:
    """Name -> array of every tensor in the file; bfloat16 as float32. FormatError for what is no such file."""
    try:
        return _read_safetensors(path) if path.suffix == ".safetensors" else _read_ckpt(path)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from None
    except FormatError as error:
        raise FormatError(f"{path}: no checkpoint that can be read: {error}") from None


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(path))
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise FormatError(str(error)) from None


def _read_ckpt(path: Path) -> dict[str, np.ndarray]:
    import numpy as np

    view = MappedFile(path).view()
    parts: dict[str, list[np.ndarray]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for number, wire_type, _, a, b in fields(view, 0, len(view)):
        if number != VALUE or wire_type != DELIMITED:
            raise FormatError(f"byte {a}: not a list of tensors (encrypted?)")
        name, tensor = "", None
        for inner, kind, _, x, y in fields(view, a, b):
            if inner == TAG and kind == DELIMITED:
                name = bytes(view[x:y]).decode("utf-8", "replace")
            elif inner == TENSOR and kind == DELIMITED:
                tensor = (x, y)
        if tensor is None:
            continue
        dims, type_, content = _tensor(view, *tensor)
        dtype = _DTYPES.get(type_)
        if dtype is None:
            continue  # a string that training left
        array = np.frombuffer(content, "<u2" if dtype == "bfloat16" else np.dtype(dtype).newbyteorder("<"))
        if dtype == "bfloat16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        parts.setdefault(name, []).append(array)
        shapes[name] = dims
    found = {name: arrays[0] if len(arrays) == 1 else np.concatenate(arrays) for name, arrays in parts.items()}
    for name, array in found.items():
        shape = () if shapes[name] == (0,) and array.size == 1 else shapes[name]
        if array.size != int(np.prod(shape, dtype=np.int64)):
            raise FormatError(f"tensor '{name}' of shape {list(shape)} has {array.size} elements")
        found[name] = array.reshape(shape)
    return found


def _tensor(view: memoryview, start: int, end: int) -> tuple[tuple[int, ...], str, memoryview]:
    dims: list[int] = []
    type_, content = "", view[:0]
    for number, kind, _, a, b in fields(view, start, end):
        if number == DIMS and kind == VARINT:
            dims.append(_number(view, a, b))
        elif number == DIMS and kind == DELIMITED:  # packed
            at = a
            while at < b:
                stop = at
                while stop < b and view[stop] > 127:
                    stop += 1
                dims.append(_number(view, at, stop + 1))
                at = stop + 1
        elif number == TYPE and kind == DELIMITED:
            type_ = bytes(view[a:b]).decode("utf-8", "replace")
        elif number == CONTENT and kind == DELIMITED:
            content = view[a:b]
    return tuple(dims), type_, content


def _number(view: memoryview, start: int, end: int) -> int:
    return sum((byte & 127) << 7 * i for i, byte in enumerate(view[start:end]))
