"""Attribute values as Python literals. Nothing but numbers, escaped strings and brackets around them comes out."""

from __future__ import annotations

import math

from ...core.attributes import Attribute, TensorValue
from ...core.data import to_numpy
from ...core.errors import PassError
from ...core.primitives.calls import CODES
from ...core.types import DType

DTYPES = {code: "bool_" if dtype is DType.BOOL else dtype.value for dtype, code in CODES.items()}
"""MindSpore's number of an element type -> its name in ``mindspore``."""
_DEEPEST = 32
_INLINE = 8
"""Tensors of at most so many elements stand in the source, larger ones in the file of the weights."""

_WITHOUT_LITERAL = (DType.BFLOAT16, DType.COMPLEX64, DType.COMPLEX128, DType.STRING)


def literal(value: Attribute, where: str, depth: int = 0) -> str:
    """``value`` as source. PassError, naming the place, for what MindSpore has no Python value for."""
    if depth > _DEEPEST:
        raise PassError(f"{where}: a value nested more than {_DEEPEST} deep cannot be written as Python")
    if value is None or isinstance(value, (bool, int)):
        return repr(value)
    if isinstance(value, float):
        return _float(value)
    if type(value) is str:  # a DType is one too, and no literal
        return ascii(value)
    if isinstance(value, tuple):
        return "(" + ", ".join(literal(v, where, depth + 1) for v in value) + (",)" if len(value) == 1 else ")")
    if isinstance(value, list):
        return "[" + ", ".join(literal(v, where, depth + 1) for v in value) + "]"
    if isinstance(value, TensorValue) and is_small(value):
        array = to_numpy(value.type, value.data)
        return f"tensor({literal(_nested(array.tolist()), where)}, {value.type.dtype.value!a}, {value.type.shape!r})"
    raise PassError(f"{where}: a value of kind {type(value).__name__} cannot be written as Python")


def is_number(value: Attribute) -> bool:
    """Whether a constant is numbers, bools and None only: such may stand in ``construct``."""
    if isinstance(value, (tuple, list)):
        return all(is_number(v) for v in value)
    return value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value))


def is_small(value: TensorValue) -> bool:
    """Whether a constant tensor stands in the source."""
    if value.type.size > _INLINE or value.type.dtype in _WITHOUT_LITERAL:
        return False
    return not value.type.dtype.is_float or all(math.isfinite(v) for v in to_numpy(value.type, value.data).flat)


def _nested(value: object) -> Attribute:
    return [_nested(v) for v in value] if isinstance(value, list) else value


def _float(value: float) -> str:
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return repr(value)
