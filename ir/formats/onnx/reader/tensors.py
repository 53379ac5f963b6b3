"""Tensors of a model: their types and bytes, in the file or in a data file beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....core.data import BytesData, Data, from_numpy, to_numpy
from ....core.errors import FormatError
from ....core.types import TensorType
from ....core.wording import counted
from ...mindir.external import DataFiles
from ..operators import ELEMENT_TYPES

if TYPE_CHECKING:
    import numpy as np


class Tensors:
    """Reads the tensors of the model at ``path``."""

    def __init__(self, path: Path):
        self._files = DataFiles(path.parent, marked=False)

    def read(self, proto: Any, what: str) -> tuple[TensorType, Data]:
        """Type and bytes; FormatError, naming ``what``, where they do not fit each other."""
        dtype = ELEMENT_TYPES.get(proto.data_type)
        if dtype is None:
            raise FormatError(f"{what}: ONNX element type {proto.data_type}, which MindSpore lacks")
        if min(proto.dims, default=0) < 0:
            raise FormatError(f"{what}: a tensor of shape {list(proto.dims)}")
        type_ = TensorType(dtype, tuple(proto.dims))
        size, data = type_.size * dtype.itemsize, None
        if proto.data_location == proto.EXTERNAL:
            data = self._external(proto, size, what)
        elif proto.HasField("raw_data"):
            data = BytesData(proto.raw_data)
        else:
            data = from_numpy(_listed(proto, type_.size, what))[1]
        if data.nbytes != size:
            raise FormatError(f"{what}: {data.nbytes} bytes of data for {type_}, which needs {size}")
        return type_, data

    def array(self, proto: Any, what: str) -> np.ndarray:
        return to_numpy(*self.read(proto, what))

    def _external(self, proto: Any, size: int, what: str) -> Data:
        said = {entry.key: entry.value for entry in proto.external_data}
        try:
            offset, length = int(said.get("offset", 0)), int(said.get("length", size))
            return self._files.data(what, said["location"], offset, length)
        except (KeyError, ValueError):
            raise FormatError(f"{what}: where its external data lies is not said, or not in numbers") from None


def _listed(proto: Any, count: int, what: str) -> np.ndarray:
    """Elements that stand in one of the typed fields."""
    from onnx import numpy_helper

    fields = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
    if count and max(len(getattr(proto, f)) for f in fields) < count:  # before anything is allocated
        raise FormatError(f"{what}: fewer than its {counted(count, 'element')} are in the file")
    try:
        return numpy_helper.to_array(proto)  # type: ignore[no-any-return]
    except (ValueError, TypeError, OverflowError) as error:
        raise FormatError(f"{what}: its elements cannot be read: {error}") from None


def declared_type(proto: Any) -> TensorType | None:
    """The type that a model declares, or inference finds: -1 for a size that is open; None for what is not a tensor of
    a type that MindSpore has, or of no known shape."""
    tensor = proto.tensor_type
    if not proto.HasField("tensor_type") or tensor.elem_type not in ELEMENT_TYPES or not tensor.HasField("shape"):
        return None
    shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim)
    return TensorType(ELEMENT_TYPES[tensor.elem_type], shape)
