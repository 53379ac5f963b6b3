"""How names and values of a file are spelled in generated source. A name is a hint at most: identifiers are plain
ASCII, unique, and neither a keyword, a builtin, nor an attribute of a Cell. A value is numbers, escaped strings and
brackets."""

from __future__ import annotations

import builtins
import keyword
import math
import re
from importlib import resources

from ...core.attributes import Attribute, TensorValue
from ...core.data import to_numpy
from ...core.errors import PassError
from ...core.primitives.calls import CODES
from ...core.types import DType

RESERVED = frozenset((
    *keyword.kwlist, *keyword.softkwlist, *dir(builtins), "self", "state", "ms", "nn",
    *(resources.files(__package__) / "cell_attributes.txt").read_text("ascii").split(),
))  # fmt: skip
"""Names with a meaning; the file lists the attributes of ``mindspore.nn.Cell`` (2.10)."""
DTYPES = {code: "bool_" if dtype is DType.BOOL else dtype.value for dtype, code in CODES.items()}
"""MindSpore's number of an element type -> its name in ``mindspore``."""
_LONGEST, _DEEPEST = 40, 32
_INLINE = 8
"""Tensors of at most so many elements stand in the source, larger ones in the file of the weights."""
_WITHOUT_LITERAL = (DType.BFLOAT16, DType.COMPLEX64, DType.COMPLEX128, DType.STRING)


class Identifiers:
    """Gives out identifiers, each once."""

    def __init__(self) -> None:
        self._serial: dict[str, int] = dict.fromkeys(RESERVED, 1)

    def claim(self, hint: str) -> str:
        """``BatchNorm2d`` as ``batch_norm2d``, or the first free of ``batch_norm2d_2``, …"""
        words = re.sub(r"(?<=[A-Za-z])(?=[A-Z][a-z])", "_", re.sub(r"[^A-Za-z0-9]+", "_", hint)).lower()
        name = unique = re.sub(r"__+", "_", words).lstrip("_0123456789")[:_LONGEST].rstrip("_") or "value"
        while unique in self._serial:
            self._serial[name] += 1
            unique = f"{name}_{self._serial[name]}"
        self._serial[unique] = 1
        return unique


def literal(value: Attribute, where: str, depth: int = 0) -> str:
    """``value`` as source. PassError, naming the place, for what MindSpore has no Python value for."""
    if depth > _DEEPEST:
        raise PassError(f"{where}: a value nested more than {_DEEPEST} deep cannot be written as Python")
    if isinstance(value, float) and not math.isfinite(value):
        return "NAN" if math.isnan(value) else "INF" if value > 0 else "-INF"
    if value is None or isinstance(value, (bool, int, float)) or type(value) is str:  # a DType is a str too
        return ascii(value)
    if isinstance(value, (tuple, list)):
        parts = [literal(v, where, depth + 1) for v in value]
        return f"[{', '.join(parts)}]" if isinstance(value, list) else bracketed(parts)
    if isinstance(value, TensorValue) and is_small(value):
        numbers = literal(to_numpy(value.type, value.data).tolist(), where)
        return f"tensor({numbers}, {value.type.dtype.value!a}, {value.type.shape!r})"
    raise PassError(f"{where}: a value of kind {type(value).__name__} cannot be written as Python")


def bracketed(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def is_number(value: Attribute) -> bool:
    """Whether a constant is numbers, bools and None only: such may stand in ``construct``."""
    if isinstance(value, (tuple, list)):
        return all(map(is_number, value))
    return value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value))


def is_small(value: TensorValue) -> bool:
    """Whether a constant tensor stands in the source."""
    if value.type.size > _INLINE or value.type.dtype in _WITHOUT_LITERAL:
        return False
    return not value.type.dtype.is_float or all(math.isfinite(v) for v in to_numpy(value.type, value.data).flat)
