"""Tensors in a ``.safetensors`` file.

Written here, and not by the library, because bytes that lie in another file go from that file straight into this one:
weights never stand in memory. The format: the length of a JSON header as 8 bytes, the header, then the bytes of the
tensors without gaps (https://github.com/huggingface/safetensors).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from ..core.data import Data
from ..core.errors import Error
from ..core.types import DType, TensorType

_NAMES = {
    DType.BOOL: "BOOL", DType.INT8: "I8", DType.INT16: "I16", DType.INT32: "I32", DType.INT64: "I64",
    DType.UINT8: "U8", DType.UINT16: "U16", DType.UINT32: "U32", DType.UINT64: "U64", DType.FLOAT16: "F16",
    DType.BFLOAT16: "U16", DType.FLOAT32: "F32", DType.FLOAT64: "F64", DType.COMPLEX64: "C64",
}  # fmt: skip
"""bfloat16 as its bits: numpy has no such type, and could not read it."""
RESERVED = "__metadata__"


def write_data(path: Path, tensors: Mapping[str, tuple[TensorType, Data]], notes: Mapping[str, str]) -> None:
    """Writes tensors by name, and ``notes`` beside them, durably. Raises Error for what the format does not have."""
    # Larger elements first: each tensor then begins at a multiple of its element's size.
    ordered = sorted(tensors.items(), key=lambda item: -item[1][0].dtype.itemsize)
    header: dict[str, object] = {RESERVED: dict(notes)} if notes else {}
    at = 0
    for name, (type_, data) in ordered:
        if name == RESERVED:
            raise Error(f"state '{name}' cannot be saved: safetensors reserves the name; rename the parameter")
        if type_.dtype not in _NAMES:
            raise Error(f"state '{name}' cannot be saved: safetensors has no {type_.dtype}")
        end = at + data.nbytes
        header[name] = {"dtype": _NAMES[type_.dtype], "shape": list(type_.shape), "data_offsets": [at, end]}
        at = end
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise Error(f"{path.name}: a name that is no text cannot be saved ({error})") from None
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for _, (_, data) in ordered:
            data.write_to(file)
        file.flush()
        os.fsync(file.fileno())
