"""Casts between element types, as MindSpore encodes them: ``Cast(x, code)`` with the type's number as an int64
constant."""

from __future__ import annotations

from ..core.errors import VerifyError
from ..core.graph import Graph, Value, tensor_type
from ..core.primitives.calls import CODES
from ..core.types import DType, TensorType


def cast(graph: Graph, value: Value, dtype: DType, *, scope: str = "") -> Value:
    """``value`` in another element type: a new Cast at the insertion point, or the value itself if it has that type."""
    source = tensor_type(value)
    if source.dtype is dtype:
        return value
    if dtype not in CODES:
        raise VerifyError(f"no cast to {dtype}")
    target = TensorType(dtype, source.shape)
    return graph.create("Cast", [value, graph.constant(CODES[dtype])], target, scope=scope, sources=[value])
