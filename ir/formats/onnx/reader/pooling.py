"""Pools: largest, mean and norm of what a window sees."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial, reduce

import numpy as np

from ....core.errors import FormatError
from ....core.graph import Value
from ....core.types import DType, TensorType, TupleType
from ....core.wording import counted
from ..vocabulary import Unsupported, dtype_of, shape_of
from .call import Call, Rule
from .convolution import Window, window_of
from .emitter import CLASS, Emitter, plain
from .shape import pad

_LOWEST = -3.4028234663852886e38


def _window(c: Call) -> Window:
    size = c.attribute("kernel_shape")
    if not size or len(size) != c.rank() - 2:
        raise FormatError(f"{c.op_type} of {c.rank()} axes with a window {size}")
    return window_of(c, size)


def _room(c: Call, w: Window) -> list[int]:
    """With ceil_mode, windows may reach past the padding: how many places more, behind each axis. Windows that would
    begin there are left out."""
    more = []
    for i, n in enumerate(c.shape(0)[2:]):
        length = n + w.before[i] + w.after[i]
        steps = -(-(length - w.extent[i]) // w.strides[i]) + 1
        if (steps - 1) * w.strides[i] >= n + w.before[i]:
            steps -= 1
        more.append(max((steps - 1) * w.strides[i] + w.extent[i] - length, 0))
    return more if c.attribute("ceil_mode", 0) else [0] * len(more)


def _max_pool(c: Call) -> Value | list[Value]:
    e, x, w = c.emitter, c.value(0), _window(c)
    if c.attribute("storage_order", 0):
        raise Unsupported("indices in column-major order")
    w.after = [a + m for a, m in zip(w.after, _room(c, w), strict=True)]
    if c.wants(1):
        return _with_indices(c, x, w)
    x, w = _filled(e, x, w), w.unpadded()
    if max(w.dilations) > 1:  # the largest of the input shifted to every place of the window
        return reduce(lambda a, b: e.binary("Maximum", a, b), _shifts(e, x, w))
    return _plain_pool(e, "MaxPool", x, w)


def _filled(e: Emitter, x: Value, w: Window) -> Value:
    """Padded with what is never the largest."""
    lowest = _LOWEST if dtype_of(x).is_float else float(np.iinfo(dtype_of(x).value).min)
    lowest = -65504.0 if dtype_of(x) is DType.FLOAT16 else lowest
    return pad(e, x, [0, 0, *w.before], [0, 0, *w.after], lowest)


def _plain_pool(e: Emitter, name: str, x: Value, w: Window) -> Value:
    """Without padding and dilation, along one, two or three axes."""
    sizes = w.steps(shape_of(x)[2:])
    shape = (*shape_of(x)[:2], *sizes)
    if len(sizes) == 1:
        wide = Window([1, *w.size], [1, *w.strides], [1, 1], [0, 0], [0, 0])
        return e.drop_axis(_plain_pool(e, name, e.add_axis(x, 2), wide), 2)
    if len(sizes) == 3:
        return _plain_pool3d(e, name, x, w, shape)
    if len(sizes) != 2:
        raise Unsupported(f"a pool along {counted(len(sizes), 'axis')}")
    if name == "AvgPool":
        return e.emit(name, [x, tuple(w.size), tuple(w.strides), 2, 0], shape)
    attributes = {
        "pad_mode": "VALID", "output_names": ["output"], "kernel_size": (1, 1, *w.size), "format": "NCHW",
        "strides": (1, 1, *w.strides), "input_names": ["x"],
    }  # fmt: skip
    return e.emit(name, [x], shape, attributes, CLASS)


def _plain_pool3d(e: Emitter, name: str, x: Value, w: Window, shape: Sequence[int]) -> Value:
    common = {
        "kernel_size": (1, 1, *w.size), "strides": (1, 1, *w.strides), "pad_mode": "VALID",
        "output_names": ["output"], "format": "NCDHW", "pad_list": (0,) * 6,
    }  # fmt: skip
    if name == "AvgPool":
        own = {
            "input_names": ["input"], "pad": (0,) * 6, "ceil_mode": False, "divisor_override": 0,
            "count_include_pad": True,
        }  # fmt: skip
        return e.emit("AvgPool3D", [x], shape, {**common, **own}, CLASS)
    return e.emit("MaxPool3D", [x], shape, {**common, "input_names": ["x"], "ceil_mode": 0}, CLASS)


def _shifts(e: Emitter, x: Value, w: Window) -> list[Value]:
    """For every place of the window, what each window sees there."""
    steps = w.steps(shape_of(x)[2:])
    found = []
    for place in itertools.product(*map(range, w.size)):
        begin = [p * d for p, d in zip(place, w.dilations, strict=True)]
        end = [b + (n - 1) * s + 1 for b, n, s in zip(begin, steps, w.strides, strict=True)]
        ends = [*shape_of(x)[:2], *end]
        found.append(e.slice(x, [0, 0, *begin], ends, [1, 1, *w.strides]))
    return found


def _with_indices(c: Call, x: Value, w: Window) -> list[Value]:
    """Also where the largest stood, counted over the whole tensor: MindSpore counts within a plane."""
    e, spatial = c.emitter, len(w.size)
    if spatial > 2 or w.before != w.after:
        raise Unsupported("the indices of a pool in three dimensions or with uneven padding")
    wide = x if spatial == 2 else e.add_axis(x, 2)
    size, strides, pads, dilations = ([*([f] * (2 - spatial)), *v] for f, v in
                                      ((1, w.size), (1, w.strides), (0, w.before), (1, w.dilations)))  # fmt: skip
    shape = (*shape_of(x)[:2], *([1] * (2 - spatial)), *w.steps(shape_of(x)[2:]))
    pair = TupleType((TensorType(dtype_of(x), shape), TensorType(DType.INT64, shape)), dynamic=False)
    attributes = {
        "kernel_size": (1, 1, *size), "strides": (1, 1, *strides), "input_names": ["x"], "argmax_type": 4,
        "pads": (1, 1, *pads), "ceil_mode": False, "dilation": (1, 1, *dilations),
        "output_names": ["output", "argmax"],
    }  # fmt: skip
    values, places = e.items(e.emit("MaxPoolWithArgmaxV2", [wide], pair, attributes, CLASS))
    n, channels, *plane = shape_of(x)
    first = np.arange(n * channels, dtype=np.int64) * int(np.prod(plane))
    places = e.add(places, e.constant(first.reshape(n, channels, 1, 1)))
    return [values, places] if spatial == 2 else [e.drop_axis(values, 2), e.drop_axis(places, 2)]


def _average_pool(c: Call) -> Value:
    """Each window's sum over how many places of the input (and of the padding) it sees, which is known now."""
    e, w = c.emitter, _window(c)
    sizes = c.shape(0)[2:]
    behind = [a + m for a, m in zip(w.after, _room(c, w), strict=True)]
    seen = np.zeros([n + b + a for n, b, a in zip(sizes, w.before, behind, strict=True)])
    inside = [slice(b, b + n) for n, b in zip(sizes, w.before, strict=True)]
    if c.attribute("count_include_pad", 0):
        inside = [slice(0, n + b + a) for n, b, a in zip(sizes, w.before, w.after, strict=True)]
    seen[tuple(inside)] = 1
    mean = _window_means(e, c.value(0), w, behind)
    counts, places = _counts(seen, w), math.prod(w.size)
    if (counts == places).all():
        return mean
    factor = (places / np.maximum(counts, 1)).astype(dtype_of(mean).value)
    return e.mul(mean, e.constant(factor))


def _window_means(e: Emitter, x: Value, w: Window, behind: list[int]) -> Value:
    """Each window's sum over the number of its places, zeros around the input included."""
    x = pad(e, x, [0, 0, *w.before], [0, 0, *behind])
    if max(w.dilations) == 1:
        return _plain_pool(e, "AvgPool", x, w.unpadded())
    names = {"output_names": ["sum"], "input_names": ["inputs"]}
    shifts = _shifts(e, x, w.unpadded())
    total = e.emit("AddN", [e.tuple_of(shifts)], plain(shifts[0]), names)
    return e.mul(total, e.scalar(total, 1 / math.prod(w.size)))


def _counts(seen: np.ndarray, w: Window) -> np.ndarray:
    """How many marked places each window sees; the padding is part of ``seen``."""
    total = np.zeros(w.unpadded().steps(seen.shape))
    for place in itertools.product(*map(range, w.size)):
        at = tuple(
            slice(p * d, p * d + (n - 1) * s + 1, s)
            for p, d, n, s in zip(place, w.dilations, total.shape, w.strides, strict=True)
        )
        total += seen[at]
    return total


def _lp_pool(c: Call) -> Value:
    """(sum of |x|^p)^(1/p) of each window."""
    e, w, p = c.emitter, _window(c), c.attribute("p", 2)
    x = e.unary("Abs", c.value(0))
    x = x if p == 1 else e.binary("Pow", x, e.scalar(x, p))
    mean = _window_means(e, x, w, [a + m for a, m in zip(w.after, _room(c, w), strict=True)])
    total = e.mul(mean, e.scalar(mean, math.prod(w.size)))
    return total if p == 1 else e.binary("Pow", total, e.scalar(total, 1 / p))


def _global_pool(name: str, c: Call) -> Value:
    return c.emitter.reduce(name, c.value(0), range(2, c.rank()), True)


def _global_lp_pool(c: Call) -> Value:
    e, p = c.emitter, c.attribute("p", 2)
    x = e.unary("Abs", c.value(0))
    total = e.reduce("ReduceSum", e.binary("Pow", x, e.scalar(x, p)), range(2, c.rank()), True)
    return e.binary("Pow", total, e.scalar(total, 1 / p))


RULES: dict[str, Rule] = {
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "LpPool": _lp_pool,
    "GlobalAveragePool": partial(_global_pool, "ReduceMean"),
    "GlobalMaxPool": partial(_global_pool, "ReduceMax"),
    "GlobalLpPool": _global_lp_pool,
}
