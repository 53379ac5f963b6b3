"""Normalizations over the batch, layers, groups, instances and channels."""

from __future__ import annotations

import math

import numpy as np

from ....core.errors import FormatError
from ....core.graph import Value
from ....core.types import TensorType, TupleType
from ....core.wording import counted
from ..vocabulary import Unsupported, dtype_of, shape_of
from .call import Call, Rule, Weight
from .emitter import Emitter, plain
from .shape import pad


def _batch_normalization(c: Call) -> Value | list[Value]:
    e, x = c.emitter, c.value(0)
    epsilon, momentum = c.attribute("epsilon", 1e-5), c.attribute("momentum", 0.9)
    if c.opset < 14 and any(c.wanted[1:]):
        raise Unsupported("it computes statistics in the way of an opset before 14: export again")
    if c.attribute("training_mode", 0):
        return _in_training(c, x, epsilon, momentum)
    for i in (3, 4):
        item = c.item(i)
        if isinstance(item, Weight):
            item.is_statistic = True
    shape = shape_of(x)
    # MindSpore's kernel takes matrices and pictures.
    if len(shape) < 2:
        raise FormatError(f"BatchNormalization of {list(shape)}")
    x = x if len(shape) in (2, 4) else e.reshape(x, (*shape[:2], 1, math.prod(shape[2:])))
    channels = TensorType(c.type(1).dtype, (shape[1],))
    five = TupleType((plain(x), *(channels,) * 4), dynamic=False)
    operands = [x, *(c.parameter(i) for i in range(1, 5)), False, float(epsilon), 1 - momentum, 0]
    return e.reshape(e.item(e.emit("BatchNorm", operands, five), 0), shape)


def _in_training(c: Call, x: Value, epsilon: float, momentum: float) -> list[Value]:
    """By the batch's own mean and variance; the new statistics are results, not state, as in ONNX."""
    e = c.emitter
    axes = [i for i in range(len(shape_of(x))) if i != 1]
    ones = [1] * (len(shape_of(x)) - 2)
    mean = e.reduce("ReduceMean", x, axes, True)
    centred = e.sub(x, mean)
    variance = e.reduce("ReduceMean", e.unary("Square", centred), axes, True)
    normal = e.mul(centred, e.unary("Rsqrt", e.add(variance, e.scalar(variance, epsilon))))
    gamma, beta = (e.reshape(c.parameter(i), (*c.shape(i), *ones)) for i in (1, 2))
    results = [e.add(e.mul(normal, gamma), beta)]
    for i, new in ((3, mean), (4, variance)):
        if c.wants(i - 2):
            old = e.mul(c.value(i), e.scalar(x, momentum))
            results.append(e.add(old, e.mul(e.reshape(new, c.shape(i)), e.scalar(x, 1 - momentum))))
    return results


def _layer_normalization(c: Call) -> list[Value]:
    e, x = c.emitter, c.value(0)
    shape = shape_of(x)
    axis = c.axis(c.attribute("axis", -1))
    epsilon = c.attribute("epsilon", 1e-5)
    inner = shape[axis:]
    gamma = e.expand(c.parameter(1), inner)
    beta = e.expand(c.parameter(2), inner) if c.has(2) else e.constant(np.zeros(inner, dtype_of(x).value))
    small = TensorType(dtype_of(x), (*shape[:axis], *(1 for _ in inner)))
    begin = axis - len(shape) if axis == len(shape) - 1 else axis
    three = TupleType((plain(x), small, small), dynamic=False)
    made = e.emit("LayerNorm", [x, gamma, beta, begin, begin, float(epsilon)], three)
    results = [e.item(made, 0)]
    if c.wants(1) or c.wants(2):
        variance = e.add(e.item(made, 2), e.scalar(x, epsilon))
        results += [e.item(made, 1), e.unary("Rsqrt", variance)]
    return results


def _group_norm(e: Emitter, x: Value, groups: int, gamma: Value, beta: Value, epsilon: float) -> Value:
    small = TensorType(dtype_of(x), (shape_of(x)[0], groups))
    three = TupleType((plain(x), small, small), dynamic=False)
    return e.item(e.emit("GroupNorm", [x, groups, gamma, beta, float(epsilon)], three), 0)


def _instance_normalization(c: Call) -> Value:
    return _group_norm(
        c.emitter, c.value(0), c.shape(0)[1], c.parameter(1), c.parameter(2), c.attribute("epsilon", 1e-5)
    )  # fmt: skip


def _group_normalization(c: Call) -> Value:
    """Before opset 21 with a scale for each group, since then for each channel."""
    e, groups, channels = c.emitter, c.attribute("num_groups"), c.shape(0)[1]
    if not groups or channels % groups:
        raise FormatError(f"GroupNormalization of {channels} channels in {counted(groups, 'group')}")
    gamma, beta = c.parameter(1), c.parameter(2)
    if c.opset < 21 and groups != channels:
        each = channels // groups
        gamma, beta = (
            e.reshape(e.expand(e.reshape(v, (groups, 1)), (groups, each)), (channels,)) for v in (gamma, beta)
        )
    return _group_norm(e, c.value(0), groups, gamma, beta, c.attribute("epsilon", 1e-5))


def _rms_normalization(c: Call) -> Value:
    """x / sqrt(mean(x²) + epsilon) times a scale."""
    e, x = c.emitter, c.value(0)
    axis = c.axis(c.attribute("axis", -1))
    mean = e.reduce("ReduceMean", e.unary("Square", x), range(axis, c.rank()), True)
    normal = e.mul(x, e.unary("Rsqrt", e.add(mean, e.scalar(x, c.attribute("epsilon", 1e-5)))))
    return e.mul(normal, c.parameter(1))


def _mean_variance_normalization(c: Call) -> Value:
    e, x = c.emitter, c.value(0)
    axes = [c.axis(a) for a in c.attribute("axes") or (0, 2, 3)]
    centred = e.sub(x, e.reduce("ReduceMean", x, axes, True))
    deviation = e.unary("Sqrt", e.reduce("ReduceMean", e.unary("Square", centred), axes, True))
    return e.div(centred, e.add(deviation, e.scalar(x, 1e-9)))


def _lrn(c: Call) -> Value:
    """x / (bias + alpha / size · sum of squares of the neighbouring channels)^beta."""
    e, x, size = c.emitter, c.value(0), c.attribute("size")
    rank, channels = c.rank(), c.shape(0)[1]
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    square = pad(
        e, e.unary("Square", x),
        [before if i == 1 else 0 for i in range(rank)], [after if i == 1 else 0 for i in range(rank)],
    )  # fmt: skip
    total = e.part(square, 1, 0, channels)
    for i in range(1, size):
        total = e.add(total, e.part(square, 1, i, i + channels))
    inner = e.add(e.mul(total, e.scalar(x, c.attribute("alpha", 1e-4) / size)), e.scalar(x, c.attribute("bias", 1.0)))
    return e.div(x, e.binary("Pow", inner, e.scalar(x, c.attribute("beta", 0.75))))


RULES: dict[str, Rule] = {
    "BatchNormalization": _batch_normalization,
    "LayerNormalization": _layer_normalization,
    "InstanceNormalization": _instance_normalization,
    "GroupNormalization": _group_normalization,
    "RMSNormalization": _rms_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "LRN": _lrn,
}
