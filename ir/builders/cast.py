"""Casts between element types, as MindSpore encodes them: ``Cast(x, code)`` with the type's number as an int64
constant."""

from __future__ import annotations

from ..core.errors import VerifyError
from ..core.graph import Graph, Value, tensor_type
from ..core.types import DType, TensorType

CODES: dict[DType, int] = {
    DType.BOOL: 30, DType.INT8: 32, DType.INT16: 33, DType.INT32: 34, DType.INT64: 35, DType.UINT8: 37,
    DType.UINT16: 38, DType.UINT32: 39, DType.UINT64: 40, DType.FLOAT16: 42, DType.FLOAT32: 43, DType.FLOAT64: 44,
    DType.BFLOAT16: 45,
}  # fmt: skip
"""MindSpore's ``TypeId`` of number types as 2.10 prints them (``type_to_type_id``)."""


def cast(graph: Graph, value: Value, dtype: DType, *, scope: str = "") -> Value:
    """``value`` in another element type: a new Cast at the insertion point, or the value itself if it has that type."""
    source = tensor_type(value)
    if source.dtype is dtype:
        return value
    if dtype not in CODES:
        raise VerifyError(f"no cast to {dtype}")
    target = TensorType(dtype, source.shape)
    return graph.create("Cast", [value, graph.constant(CODES[dtype])], target, scope=scope, sources=[value])
