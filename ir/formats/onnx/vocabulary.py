"""The vocabulary that reader and writers of ONNX models share: numbers of element types, operators that are one
primitive, and the words for what has no translation."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.errors import Error
from ...core.graph import Value, tensor_type
from ...core.types import DType

NUMBERS = {
    DType.FLOAT32: 1, DType.UINT8: 2, DType.INT8: 3, DType.UINT16: 4, DType.INT16: 5, DType.INT32: 6, DType.INT64: 7,
    DType.STRING: 8, DType.BOOL: 9, DType.FLOAT16: 10, DType.FLOAT64: 11, DType.UINT32: 12, DType.UINT64: 13,
    DType.COMPLEX64: 14, DType.COMPLEX128: 15, DType.BFLOAT16: 16,
}  # fmt: skip
"""ONNX's numbers of MindSpore's element types."""

UNARY = {
    "Neg": "Neg", "Abs": "Abs", "Exp": "Exp", "Log": "Log", "Sqrt": "Sqrt", "Reciprocal": "Reciprocal",
    "Floor": "Floor", "Ceil": "Ceil", "Round": "Rint", "Sign": "Sign", "Sin": "Sin", "Cos": "Cos", "Tan": "Tan",
    "Asin": "Asin", "Acos": "ACos", "Atan": "Atan", "Sinh": "Sinh", "Cosh": "Cosh", "Tanh": "Tanh", "Asinh": "Asinh",
    "Acosh": "Acosh", "Atanh": "Atanh", "Erf": "Erf", "Sigmoid": "Sigmoid", "Relu": "ReLU", "Softplus": "Softplus",
    "Softsign": "Softsign", "Mish": "Mish", "Not": "LogicalNot", "BitwiseNot": "Invert",
}  # fmt: skip
"""Operators of one input that are one primitive, and that primitive."""

COMPARISONS = {"Less": "Less", "LessOrEqual": "LessEqual", "Greater": "Greater", "GreaterOrEqual": "GreaterEqual"}
BITWISE = ("BitwiseAnd", "BitwiseOr", "BitwiseXor")

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
