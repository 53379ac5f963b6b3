"""What reader and writer of ONNX models share: entries of the table of operators, element types, forms of primitives,
and the words for what has no translation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.errors import Error
from ...core.graph import Value, tensor_type
from ...core.types import DType
from ..mindir.codec import DTYPES

ELEMENT_TYPES = {number: dtype for number, dtype in DTYPES.items() if dtype is not DType.STRING}
"""ONNX's numbers of element types are those of MindIR."""
OPSET = 18
"""The opset that models are written in. An older one is brought to it before it is read."""

CLASS, FUNCTION = 1, 2
"""Kinds of primitives in an export."""
_X, _XY = ({"output_names": ["output"], "input_names": names} for names in (["x"], ["x", "y"]))
_BITS = {"output_names": ["y"], "input_names": ["x1", "x2"]}
_SCATTER = {"output_names": ["y"], "input_names": ["input_x", "indices", "updates"]}
FORMS: dict[str, tuple[int, dict[str, Any]]] = {
    "Sub": (FUNCTION, _XY),
    "Tan": (FUNCTION, {"output_names": ["output"], "input_names": ["input"]}),
    "Log": (FUNCTION, {"shift": 0.0, "scale": 1.0, "cust_aicpu": "Log", "base": -1.0}),
    "Dropout": (FUNCTION, {"side_effect_hidden": True}),
    **dict.fromkeys(("Rint", "Softplus", "Softsign", "Mish", "IsNan"), (CLASS, _X)),
    **dict.fromkeys(("TruncateMod", "TruncateDiv"), (CLASS, _XY)),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), (CLASS, _BITS)),
    "Invert": (CLASS, {"output_names": ["y"], "input_names": ["x"]}),
    "Pad": (CLASS, {"output_names": ["y"], "input_names": ["x"]}),
    "TopK": (CLASS, {"output_names": ["values", "indices"], "sorted": True, "input_names": ["input", "k"]}),
    **dict.fromkeys((f"TensorScatter{how}" for how in ("Update", "Mul", "Max", "Min")), (CLASS, _SCATTER)),
    **dict.fromkeys(("Conv2D", "Conv3D"), (CLASS, {"output_names": ["output"], "input_names": ["x", "w"]})),
    "Conv2DTranspose": (CLASS, {"output_names": ["output"],
                                "input_names": ["out_backprop", "filter", "input_sizes"]}),
    **dict.fromkeys(("MaxPool", "MaxPool3D"), (CLASS, _X)),
    "AvgPool3D": (CLASS, {"output_names": ["output"], "input_names": ["input"]}),
    **dict.fromkeys(("MakeTuple", "TupleGetItem", "Load", "UpdateState", "Depend"), (CLASS, {})),
}  # fmt: skip
"""Kind and standing attributes that an export gives to primitives; others are functions without attributes."""


@dataclass(frozen=True)
class Entry:
    """An operator of ONNX and a primitive of MindSpore, and how each becomes the other; None where it does not.

    ``read`` takes a :class:`.call.Call` and returns the operator's outputs: one, or a sequence; values, or numpy arrays
    for what is constant. ``write`` takes a :class:`.writing.Writing` and a node, and returns the names of its outputs.
    """

    operator: str = ""
    primitive: str = ""
    read: Callable[[Any], Any] | None = None
    write: Callable[[Any, Any], Any] | None = None


class Unsupported(Error):
    """This use of an operator, or of a primitive, has no translation; the message is the reason."""


_LISTED = 40


def listed(reasons: Sequence[str]) -> str:
    """A line for each reason, indented; of many the first."""
    more = [f"… and {len(reasons) - _LISTED} more"] if len(reasons) > _LISTED else []
    return "".join(f"\n  {line}" for line in [*reasons[:_LISTED], *more])


def shape_of(value: Value) -> tuple[int, ...]:
    return tensor_type(value).shape


def dtype_of(value: Value) -> DType:
    return tensor_type(value).dtype
