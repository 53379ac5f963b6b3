"""Arithmetic, comparison, logic and rounding, element by element."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial, reduce

from ....core.attributes import Attribute
from ....core.graph import Value
from ....core.op import NO_ATTRIBUTES
from ....core.types import DType, TensorType
from ..vocabulary import BITWISE, COMPARISONS, UNARY, Unsupported, dtype_of, shape_of
from .call import Call, Rule
from .emitter import CLASS, FUNCTION

_XY = {"output_names": ["output"], "input_names": ["x", "y"]}
_X = {"output_names": ["output"], "input_names": ["x"]}
_BITS = {"output_names": ["y"], "input_names": ["x1", "x2"]}
_CLASSES = ("Round", "Softplus", "Softsign", "Mish")
"""Of one input, whose primitives are classes in an export."""


def _unary(name: str, c: Call, attributes: Mapping[str, Attribute] = NO_ATTRIBUTES, kind: int = FUNCTION) -> Value:
    return c.emitter.unary(name, c.value(0), attributes, kind)


def _binary(name: str, c: Call, attributes: Mapping[str, Attribute] = NO_ATTRIBUTES, kind: int = FUNCTION) -> Value:
    return c.emitter.binary(name, c.value(0), c.value(1), attributes, kind)


def _compare(name: str, c: Call) -> Value:
    return c.emitter.compare(name, c.value(0), c.value(1))


def _variadic(name: str, c: Call) -> Value:
    return reduce(lambda a, b: c.emitter.binary(name, a, b), c.values())


def _mean(c: Call) -> Value:
    total = _variadic("Add", c)
    return c.emitter.mul(total, c.emitter.scalar(total, 1 / len(c.inputs)))


def _div(c: Call) -> Value:
    """Of integers: towards zero."""
    if c.type(0).dtype.is_float:
        return c.emitter.div(c.value(0), c.value(1))
    return _binary("TruncateDiv", c, _XY, CLASS)


def _pow(c: Call) -> Value:
    """With a constant exponent of 2 or 1/2 by primitives of their own, whose derivative is defined everywhere."""
    e, x = c.emitter, c.value(0)
    if c.is_constant(1) and c.array(1).size == 1 and len(c.shape(1)) <= c.rank():
        exponent = float(c.array(1).reshape(()))
        if exponent == 2 and dtype_of(x).is_float:
            return e.unary("Square", x)
        if exponent == 0.5:
            return e.unary("Sqrt", x)
    return e.binary("Pow", x, e.cast(c.value(1), dtype_of(x)))


def _mod(c: Call) -> Value:
    """The sign of the divisor, or with fmod that of the dividend."""
    if not c.attribute("fmod", 0):
        return _binary("FloorMod", c)
    return _binary("TruncateMod", c, _XY, CLASS)


def _is_nan(c: Call) -> Value:
    x = c.value(0)
    return c.emitter.emit("IsNan", [x], TensorType(DType.BOOL, shape_of(x)), _X, CLASS)


def _is_inf(c: Call) -> Value:
    e, x = c.emitter, c.value(0)
    infinite = e.emit("IsInf", [x], TensorType(DType.BOOL, shape_of(x)))
    positive, negative = c.attribute("detect_positive", 1), c.attribute("detect_negative", 1)
    if positive and negative:
        return infinite
    if not positive and not negative:
        raise Unsupported("it detects neither infinity")
    side = e.compare("Greater" if positive else "Less", x, e.scalar(x, 0.0))
    return e.binary("LogicalAnd", infinite, side)


def _equal(c: Call) -> Value:
    """Of booleans too, which MindSpore has no such kernel for."""
    if c.type(0).dtype is DType.BOOL:
        return c.emitter.unary("LogicalNot", _binary("LogicalXor", c))
    return _compare("Equal", c)


RULES: dict[str, Rule] = {
    **{name: partial(_unary, primitive) for name, primitive in UNARY.items()},
    **{name: partial(_unary, UNARY[name], attributes=_X, kind=CLASS) for name in _CLASSES},
    "Tan": partial(_unary, "Tan", attributes={"output_names": ["output"], "input_names": ["input"]}),
    "Log": lambda c: c.emitter.log(c.value(0)),
    "BitwiseNot": partial(_unary, "Invert", attributes={"output_names": ["y"], "input_names": ["x"]}, kind=CLASS),
    **{name: partial(_compare, primitive) for name, primitive in COMPARISONS.items()},
    **{name: partial(_binary, name, attributes=_BITS, kind=CLASS) for name in BITWISE},
    "Add": partial(_binary, "Add"),
    "Mul": partial(_binary, "Mul"),
    "Sub": lambda c: c.emitter.sub(c.value(0), c.value(1)),
    "Div": _div,
    "Pow": _pow,
    "Mod": _mod,
    "IsNaN": _is_nan,
    "IsInf": _is_inf,
    "Max": partial(_variadic, "Maximum"),
    "Min": partial(_variadic, "Minimum"),
    "Sum": partial(_variadic, "Add"),
    "Mean": _mean,
    "And": partial(_binary, "LogicalAnd"),
    "Or": partial(_binary, "LogicalOr"),
    "Xor": partial(_binary, "LogicalXor"),
    "Equal": _equal,
    "BitShift": lambda c: _binary("LeftShift" if c.attribute("direction") == "LEFT" else "RightShift", c),
    "Where": lambda c: c.emitter.select(c.value(0), c.value(1), c.value(2)),
}
