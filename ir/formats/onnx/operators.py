"""What reader and writer of ONNX models share: the table of operators that are one primitive, numbers of element types,
and the words for what has no translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import Error
from ...core.graph import Value, tensor_type
from ...core.types import DType

NUMBERS = {
    DType.FLOAT32: 1, DType.UINT8: 2, DType.INT8: 3, DType.UINT16: 4, DType.INT16: 5, DType.INT32: 6, DType.INT64: 7,
    DType.STRING: 8, DType.BOOL: 9, DType.FLOAT16: 10, DType.FLOAT64: 11, DType.UINT32: 12, DType.UINT64: 13,
    DType.COMPLEX64: 14, DType.COMPLEX128: 15, DType.BFLOAT16: 16,
}  # fmt: skip
"""ONNX's numbers of MindSpore's element types."""
OPSET = 18
"""The opset that models are written in. An older one is brought to it before it is read."""
CLASS, FUNCTION = 1, 2
"""Kinds of primitives in an export."""


@dataclass(frozen=True)
class Row:
    """An operator that is one primitive. ``operands``: what the primitive takes, in its order. A number is an input of
    the operator, a name an attribute of it; ``#0`` is input 0 as integers, ``?name`` an attribute as a truth value, and
    ``(name,)`` a tuple of one attribute. ``fixed``: attributes that the operator always has. ``attributes`` and
    ``kind``: the primitive as an export has it."""

    operator: str
    primitive: str
    operands: tuple[Any, ...] = (0,)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    kind: int = FUNCTION


_X, _XY = ({"output_names": ["output"], "input_names": names} for names in (["x"], ["x", "y"]))
_BITS = {"output_names": ["y"], "input_names": ["x1", "x2"]}
_BOTH = (0, 1)

ROWS = (
    *(Row(name, name) for name in (
        "Neg", "Abs", "Exp", "Sqrt", "Reciprocal", "Floor", "Ceil", "Sign", "Sin", "Cos", "Asin", "Atan", "Sinh",
        "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Erf", "Sigmoid",
    )),
    Row("Acos", "ACos"),
    Row("Relu", "ReLU"),
    Row("Not", "LogicalNot"),
    Row("Tan", "Tan", attributes={"output_names": ["output"], "input_names": ["input"]}),
    Row("Log", "Log", attributes={"shift": 0.0, "scale": 1.0, "cust_aicpu": "Log", "base": -1.0}),
    Row("Round", "Rint", attributes=_X, kind=CLASS),
    *(Row(name, name, attributes=_X, kind=CLASS) for name in ("Softplus", "Softsign", "Mish")),
    Row("BitwiseNot", "Invert", attributes={"output_names": ["y"], "input_names": ["x"]}, kind=CLASS),
    Row("IsNaN", "IsNan", attributes=_X, kind=CLASS),
    Row("IsInf", "IsInf"),
    *(Row(name, name, _BOTH) for name in ("Add", "Mul", "Less", "Greater", "Equal")),
    Row("Sub", "Sub", _BOTH, attributes=_XY),
    Row("LessOrEqual", "LessEqual", _BOTH),
    Row("GreaterOrEqual", "GreaterEqual", _BOTH),
    *(Row(name, f"Logical{name}", _BOTH) for name in ("And", "Or", "Xor")),
    Row("Max", "Maximum", _BOTH),
    Row("Min", "Minimum", _BOTH),
    *(Row(name, name, _BOTH, attributes=_BITS, kind=CLASS) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    Row("LogSoftmax", "LogSoftmax", (0, "axis")),
    Row("Softmax", "Softmax", (0, ("axis",))),
    Row("CumSum", "CumSum", (0, "#1", "?exclusive", "?reverse")),
    Row("GatherElements", "GatherD", (0, "axis", 1)),
    # Primitives that the reader has no use for, or makes by a rule of its own.
    Row("Pow", "Pow", _BOTH),
    Row("Mod", "TruncateMod", _BOTH, {"fmod": 1}, _XY, CLASS),
    Row("Div", "TruncateDiv", _BOTH, {}, _XY, CLASS),
    Row("Mod", "Mod", _BOTH, {"fmod": 1}),
    Row("Where", "Select", (0, 1, 2)),
    Row("Selu", "SeLU"),
    Row("HardSwish", "HSwish"),
    Row("HardSigmoid", "HSigmoid", fixed={"alpha": 1 / 6, "beta": 0.5}),
    Row("Elu", "Elu", (0, "alpha")),
)  # fmt: skip

_LISTED = 40


class Unsupported(Error):
    """This use of an operator, or of a primitive, has no translation; the message is the reason."""


def listed(reasons: Sequence[str]) -> str:
    """A line for each reason, indented; of many the first."""
    more = [f"… and {len(reasons) - _LISTED} more"] if len(reasons) > _LISTED else []
    return "".join(f"\n  {line}" for line in [*reasons[:_LISTED], *more])


def shape_of(value: Value) -> tuple[int, ...]:
    return tensor_type(value).shape


def dtype_of(value: Value) -> DType:
    return tensor_type(value).dtype
