"""Activations, softmaxes, clipping, dropout."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ....core.graph import Value
from ....core.types import DType, TensorType, TupleType
from ..vocabulary import dtype_of, shape_of
from .call import Call, Rule
from .emitter import Emitter, plain


def _two_slopes(c: Call, slope: Value) -> Value:
    e, x = c.emitter, c.value(0)
    zero = e.scalar(x, 0.0)
    return e.add(e.binary("Maximum", x, zero), e.mul(slope, e.binary("Minimum", x, zero)))


def _exponential(e: Emitter, x: Value, alpha: float) -> Value:
    """x where it is positive, else alpha (exp(x) - 1)."""
    below = e.unary("Expm1", e.binary("Minimum", x, e.scalar(x, 0.0)))
    scaled = below if alpha == 1 else e.mul(below, e.scalar(x, alpha))
    return e.add(e.unary("ReLU", x), scaled)


def _elu(c: Call) -> Value:
    return _exponential(c.emitter, c.value(0), c.attribute("alpha", 1.0))


def _selu(c: Call) -> Value:
    e, alpha, gamma = c.emitter, c.attribute("alpha", 1.67326319217681884765625), c.attribute("gamma", 1.05070102214813)
    x = _exponential(e, c.value(0), alpha)
    return e.mul(x, e.scalar(x, gamma))


def _celu(c: Call) -> Value:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    e, x, alpha = c.emitter, c.value(0), c.attribute("alpha", 1.0)
    inner = e.mul(e.binary("Minimum", x, e.scalar(x, 0.0)), e.scalar(x, 1 / alpha))
    return e.add(e.unary("ReLU", x), e.mul(e.unary("Expm1", inner), e.scalar(x, alpha)))


def _line(e: Emitter, x: Value, alpha: float, beta: float) -> Value:
    """alpha x + beta, between 0 and 1."""
    inner = e.add(e.mul(x, e.scalar(x, alpha)), e.scalar(x, beta))
    return e.binary("Minimum", e.binary("Maximum", inner, e.scalar(x, 0.0)), e.scalar(x, 1.0))


def _hard_swish(c: Call) -> Value:
    x = c.value(0)
    return c.emitter.mul(x, _line(c.emitter, x, 1 / 6, 0.5))


def _swish(c: Call) -> Value:
    e, x, alpha = c.emitter, c.value(0), c.attribute("alpha", 1.0)
    inner = x if alpha == 1 else e.mul(x, e.scalar(x, alpha))
    return e.mul(x, e.unary("Sigmoid", inner))


def _thresholded_relu(c: Call) -> Value:
    e, x = c.emitter, c.value(0)
    above = e.compare("Greater", x, e.scalar(x, c.attribute("alpha", 1.0)))
    return e.mul(x, e.cast(above, dtype_of(x)))


def _shrink(c: Call) -> Value:
    e, x = c.emitter, c.value(0)
    limit, bias = c.attribute("lambd", 0.5), c.attribute("bias", 0.0)
    high = e.cast(e.compare("Greater", x, e.scalar(x, limit)), dtype_of(x))
    low = e.cast(e.compare("Less", x, e.scalar(x, -limit)), dtype_of(x))
    above = e.mul(high, e.sub(x, e.scalar(x, bias)))
    return e.add(above, e.mul(low, e.add(x, e.scalar(x, bias))))


def _gelu(c: Call) -> Value:
    e, x = c.emitter, c.value(0)
    if c.attribute("approximate", "none") == "tanh":
        return e.unary("GeLU", x)
    inner = e.add(e.unary("Erf", e.div(x, e.scalar(x, math.sqrt(2)))), e.scalar(x, 1.0))
    return e.mul(e.mul(x, inner), e.scalar(x, 0.5))


def _softmax(name: str, c: Call) -> Value:
    """Before opset 13 over all axes from the given one on, together."""
    e, x = c.emitter, c.value(0)
    axis = c.axis(c.attribute("axis", -1 if c.opset >= 13 else 1))
    shape = shape_of(x)
    if c.opset < 13 and axis != len(shape) - 1:
        flat = e.reshape(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
        return e.reshape(_along(e, name, flat, 1), shape)
    return _along(e, name, x, axis)


def _along(e: Emitter, name: str, x: Value, axis: int) -> Value:
    return e.emit(name, [x, (axis,) if name == "Softmax" else axis], plain(x))


def _hardmax(c: Call) -> Value:
    """1 at the first of the largest along the axis."""
    e, x = c.emitter, c.value(0)
    axis = c.axis(c.attribute("axis", -1 if c.opset >= 13 else 1))
    shape = shape_of(x)
    rows = shape if c.opset >= 13 else (math.prod(shape[:axis]), math.prod(shape[axis:]))
    axis = axis if c.opset >= 13 else 1
    turned = e.axis_to_end(e.reshape(x, rows), axis)
    largest = e.emit("Argmax", [turned, len(rows) - 1, 34], TensorType(DType.INT32, shape_of(turned)[:-1]))
    hot = one_hot(e, largest, rows[axis], e.scalar(x, 1.0), e.scalar(x, 0.0))
    return e.reshape(e.axis_from_end(hot, axis), shape)


def one_hot(e: Emitter, indices: Value, depth: int, on: Value, off: Value) -> Value:
    """A new last axis of length ``depth``."""
    return e.emit("OneHot", [indices, depth, on, off, -1], TensorType(dtype_of(on), (*shape_of(indices), depth)))


def _clip(c: Call) -> Value:
    e, x = c.emitter, c.value(0)
    for i, name, primitive in ((1, "min", "Maximum"), (2, "max", "Minimum")):
        if c.has(i):
            x = e.binary(primitive, x, c.value(i))
        elif c.attribute(name) is not None:
            x = e.binary(primitive, x, e.scalar(x, c.attribute(name)))
    return x


def _dropout(c: Call) -> list[object]:
    """The input itself, unless the model says that it is in training."""
    e, x = c.emitter, c.item(0)
    ratio = float(c.array(1).reshape(())) if c.has(1) else c.attribute("ratio", 0.5)
    if not (c.has(2) and bool(c.array(2).reshape(()))) or ratio == 0:
        return [x, np.ones(c.shape(0), bool) if c.wants(1) else None]
    value = c.value(0)
    two = TupleType((plain(value), plain(value)), dynamic=False)
    made = e.emit("Dropout", [value, 1 - ratio, 0, 0], two, {"side_effect_hidden": True})
    mask = e.compare("NotEqual", e.item(made, 1), e.scalar(value, 0.0)) if c.wants(1) else None
    return [e.item(made, 0), mask]


RULES: dict[str, Rule] = {
    "LeakyRelu": lambda c: _two_slopes(c, c.emitter.scalar(c.value(0), c.attribute("alpha", 0.01))),
    "PRelu": lambda c: _two_slopes(c, c.parameter(1)),
    "Elu": _elu,
    "Selu": _selu,
    "Celu": _celu,
    "HardSigmoid": lambda c: _line(c.emitter, c.value(0), c.attribute("alpha", 0.2), c.attribute("beta", 0.5)),
    "HardSwish": _hard_swish,
    "Swish": _swish,
    "ThresholdedRelu": _thresholded_relu,
    "Shrink": _shrink,
    "Gelu": _gelu,
    "Softmax": partial(_softmax, "Softmax"),
    "LogSoftmax": partial(_softmax, "LogSoftmax"),
    "Hardmax": _hardmax,
    "Clip": _clip,
    "Dropout": _dropout,
}
