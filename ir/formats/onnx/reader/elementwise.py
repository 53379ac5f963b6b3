"""Arithmetic, comparison, logic and rounding, element by element."""

from __future__ import annotations

from functools import partial, reduce

from ....core.graph import Value
from ....core.types import DType
from .call import Call, Rule, Unsupported
from .emitter import CLASS, dtype_of

_XY = {"output_names": ["output"], "input_names": ["x", "y"]}
_X = {"output_names": ["output"], "input_names": ["x"]}
_BITS = {"output_names": ["y"], "input_names": ["x1", "x2"]}


def _unary(name: str, c: Call) -> Value:
    return c.emitter.unary(name, c.value(0))


def _binary(name: str, c: Call) -> Value:
    return c.emitter.binary(name, c.value(0), c.value(1))


def _compare(name: str, c: Call) -> Value:
    return c.emitter.compare(name, c.value(0), c.value(1))


def _bitwise(name: str, c: Call) -> Value:
    return c.emitter.binary(name, c.value(0), c.value(1), _BITS, CLASS)


def _variadic(name: str, c: Call) -> Value:
    return reduce(lambda a, b: c.emitter.binary(name, a, b), c.values())


def _mean(c: Call) -> Value:
    total = _variadic("Add", c)
    return c.emitter.mul(total, c.emitter.scalar(total, 1 / len(c.inputs)))


def _sub(c: Call) -> Value:
    return c.emitter.sub(c.value(0), c.value(1))


def _div(c: Call) -> Value:
    """Of integers: towards zero."""
    if c.type(0).dtype.is_float:
        return c.emitter.div(c.value(0), c.value(1))
    return c.emitter.binary("TruncateDiv", c.value(0), c.value(1), _XY, CLASS)


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
        return c.emitter.binary("FloorMod", c.value(0), c.value(1))
    return c.emitter.binary("TruncateMod", c.value(0), c.value(1), _XY, CLASS)


def _shift(c: Call) -> Value:
    return _binary("LeftShift" if c.attribute("direction") == "LEFT" else "RightShift", c)


def _log(c: Call) -> Value:
    return c.emitter.log(c.value(0))


def _round(c: Call) -> Value:
    """To the nearest, halves to even."""
    return c.emitter.unary("Rint", c.value(0), _X, CLASS)


def _is_nan(c: Call) -> Value:
    return c.emitter.predicate("IsNan", c.value(0), _X, CLASS)


def _is_inf(c: Call) -> Value:
    e, x = c.emitter, c.value(0)
    infinite = e.predicate("IsInf", x)
    positive, negative = c.attribute("detect_positive", 1), c.attribute("detect_negative", 1)
    if positive and negative:
        return infinite
    if not positive and not negative:
        raise Unsupported("it detects neither infinity")
    side = e.compare("Greater" if positive else "Less", x, e.scalar(x, 0.0))
    return e.binary("LogicalAnd", infinite, side)


def _invert(c: Call) -> Value:
    return c.emitter.unary("Invert", c.value(0), {"output_names": ["y"], "input_names": ["x"]}, CLASS)


def _tan(c: Call) -> Value:
    return c.emitter.unary("Tan", c.value(0), {"output_names": ["output"], "input_names": ["input"]})


def _not(c: Call) -> Value:
    return _unary("LogicalNot", c)


def _where(c: Call) -> Value:
    return c.emitter.select(c.value(0), c.value(1), c.value(2))


def _equal(c: Call) -> Value:
    """Of booleans too, which MindSpore has no such kernel for."""
    if c.type(0).dtype is DType.BOOL:
        return c.emitter.unary("LogicalNot", _binary("LogicalXor", c))
    return _compare("Equal", c)


_UNARY = [
    "Neg",
    "Abs",
    "Exp",
    "Sqrt",
    "Reciprocal",
    "Floor",
    "Ceil",
    "Sign",
    "Sin",
    "Cos",
    "Asin",
    "Atan",
    "Sinh",
    "Cosh",
    "Tanh",
    "Asinh",
    "Acosh",
    "Atanh",
    "Erf",
    "Sigmoid",
]

RULES: dict[str, Rule] = {
    **{name: partial(_unary, name) for name in _UNARY},
    "Acos": partial(_unary, "ACos"),
    "Add": partial(_binary, "Add"),
    "Mul": partial(_binary, "Mul"),
    "Sub": _sub,
    "Div": _div,
    "Pow": _pow,
    "Mod": _mod,
    "Log": _log,
    "Tan": _tan,
    "Round": _round,
    "IsNaN": _is_nan,
    "IsInf": _is_inf,
    "Max": partial(_variadic, "Maximum"),
    "Min": partial(_variadic, "Minimum"),
    "Sum": partial(_variadic, "Add"),
    "Mean": _mean,
    "And": partial(_binary, "LogicalAnd"),
    "Or": partial(_binary, "LogicalOr"),
    "Xor": partial(_binary, "LogicalXor"),
    "Not": _not,
    "Equal": _equal,
    "Less": partial(_compare, "Less"),
    "LessOrEqual": partial(_compare, "LessEqual"),
    "Greater": partial(_compare, "Greater"),
    "GreaterOrEqual": partial(_compare, "GreaterEqual"),
    "BitwiseAnd": partial(_bitwise, "BitwiseAnd"),
    "BitwiseOr": partial(_bitwise, "BitwiseOr"),
    "BitwiseXor": partial(_bitwise, "BitwiseXor"),
    "BitwiseNot": _invert,
    "BitShift": _shift,
    "Where": _where,
}
