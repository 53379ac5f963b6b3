"""Whether two attribute values, or the data of two tensors, are the same by bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.attributes import Number, TensorValue, bits
from ...core.data import Data
from ...core.types import Type


def same(a: Any, b: Any) -> bool:
    """Whether two attribute values, or mappings of them, are the same by bits."""
    if a is b:
        return True
    if isinstance(a, Mapping):
        return isinstance(b, Mapping) and a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, TensorValue):
        return a.type == b.type and same_data(a.data, b.data)
    if isinstance(a, Number):
        return a.dtype == b.dtype and same(a.value, b.value)
    if isinstance(a, Type):
        return bool(a == b)
    return bits(a) == bits(b)


def same_data(a: Data, b: Data) -> bool:
    """Whether the bytes are the same."""
    return a is b or (a.nbytes == b.nbytes and a.view() == b.view())
