"""What a window sees as it moves along one, two or three axes: convolutions, their transposes, pools."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from ....core.errors import FormatError
from ....core.graph import Value
from ....core.types import DType
from ....core.wording import counted
from ..operators import CLASS, Unsupported, dtype_of, shape_of
from ..window import Window
from .call import Call, Rule
from .emitter import Emitter


def _window(c: Call, size: Sequence[int] | None) -> Window:
    """From the attributes that convolutions and pools share."""
    axes = c.rank() - 2
    if size is None or len(size) != axes or axes < 1:
        raise FormatError(f"{c.node.op_type} of {counted(c.rank(), 'axis')} with a window {size}")
    strides, dilations = (tuple(c.attribute(name) or (1,) * axes) for name in ("strides", "dilations"))
    pads = tuple(c.attribute("pads") or (0,) * 2 * axes)
    if not len(strides) == len(dilations) == axes or len(pads) != 2 * axes or min(strides + dilations + (*size,)) < 1:
        raise FormatError(f"{c.node.op_type} along {counted(axes, 'axis')}: strides {strides}, dilations {dilations}, "
                          f"pads {pads}")  # fmt: skip
    return Window(tuple(size), strides, dilations, pads[:axes], pads[axes:])


def _same(c: Call, window: Window) -> Window:
    """With the padding that "same" stands for."""
    mode = c.attribute("auto_pad")
    return window.padded(c.shape()[2:], c.result[2:], mode == "SAME_UPPER") if mode.startswith("SAME") else window


def _spread(e: Emitter, x: Value, axes: int) -> Value:
    """With axes of length 1 behind the channels, so that there are so many behind them."""
    shape = shape_of(x)
    return e.reshape(x, (*shape[:2], *(1,) * (axes + 2 - len(shape)), *shape[2:]))


def _conv(c: Call) -> Value:
    e, x, weight, group = c.e, c.value(0), c.value(1, True), c.attribute("group")
    if shape_of(x)[1] != shape_of(weight)[1] * group:
        raise FormatError(f"Conv of {list(shape_of(x))} with {list(shape_of(weight))}, group {group}")
    w = _same(c, _window(c, shape_of(weight)[2:]))
    axes = max(2, len(w.size))
    w, shape = w.along(axes), (*c.result[:2], *(1,) * (axes + 2 - len(c.result)), *c.result[2:])
    attributes: dict[str, Any] = _attributes(w, group, shape[1], ["x", "w"])
    if axes == 3:
        if group != 1 or max(w.dilations) > 1:
            raise Unsupported("a convolution in three dimensions with groups or dilation, which MindSpore's CPU lacks")
        attributes |= {"offset_x": 0, "format": "NCDHW", "stride": w.strides, "strides": (1, 1, *w.strides),
                       "dilations": (1,) * 5, "dilation": 1}  # fmt: skip
    elif axes != 2:
        raise Unsupported(counted(axes, "spatial axis"))
    made = e.emit(f"Conv{axes}D", [_spread(e, x, axes), _spread(e, weight, axes)], shape, attributes, CLASS)
    return e.bias(e.reshape(made, c.result), c.optional(2))


def _attributes(w: Window, group: int, channels: int, names: list[str]) -> dict[str, Any]:
    return {
        "kernel_size": w.size, "mode": 1, "out_channel": channels, "input_names": names, "pad": w.pads,
        "pad_mode": "pad", "format": "NCHW", "pad_list": w.pads, "groups": group, "stride": (1, 1, *w.strides),
        "group": group, "dilation": (1, 1, *w.dilations), "output_names": ["output"],
    }  # fmt: skip


def _conv_transpose(c: Call) -> Value:
    """The kernel computes all that its windows reach, without padding. The padding is taken away, and what
    output_padding adds behind has no input under it."""
    e, x, weight, group = c.e, c.value(0), c.value(1, True), c.attribute("group")
    if shape_of(x)[1] != shape_of(weight)[0]:
        raise FormatError(f"ConvTranspose of {list(shape_of(x))} with {list(shape_of(weight))}")
    w, sizes, mode = _window(c, shape_of(weight)[2:]), c.result[2:], c.attribute("auto_pad")
    if len(sizes) > 2:
        raise Unsupported(f"a transposed convolution along {counted(len(sizes), 'axis')}")
    if c.attribute("output_shape") or mode.startswith("SAME"):
        more = c.attribute("output_padding") or (0,) * len(sizes)
        left = [n - m for n, m in zip(sizes, more, strict=True)]
        w = w.padded(left, c.shape()[2:], mode == "SAME_UPPER")
    x, weight, w = _spread(e, x, 2), _spread(e, weight, 2), w.along(2)
    sizes = (*(1,) * (2 - len(sizes)), *sizes)
    whole = [s * (n - 1) + k for s, n, k in zip(w.strides, shape_of(x)[2:], w.extent, strict=True)]
    channels, each = shape_of(weight)[1], shape_of(x)[1] // group
    attributes = _attributes(w.unpadded(), 1, each, ["out_backprop", "filter", "input_sizes"])
    shape = (shape_of(x)[0], channels, *whole)
    parts = [[e.part(v, axis, i * each, (i + 1) * each) for v, axis in ((x, 1), (weight, 0))] for i in range(group)]
    made = [e.emit("Conv2DTranspose", [*part, shape], shape, {**attributes, "pad_mode": "PAD"}, CLASS)
            for part in parts]  # fmt: skip
    behind = [n + b - d for n, b, d in zip(sizes, w.before, whole, strict=True)]
    cut = e.pad(e.concat(made, 1), [-b for b in w.before], behind)
    return e.bias(e.reshape(cut, c.result), c.optional(2))


def _pool_window(c: Call) -> Window:
    window = _same(c, _window(c, c.attribute("kernel_shape")))
    return window.reaching(c.shape()[2:], c.result[2:])


def _max_pool(c: Call) -> Value:
    e, x, w = c.e, c.value(0), _pool_window(c)
    if c.wants(1):
        raise Unsupported("the places of the largest")
    lowest = -3.4028234663852886e38 if dtype_of(x).is_float else float(np.iinfo(dtype_of(x).value).min)
    x = e.pad(x, w.before, w.after, -65504.0 if dtype_of(x) is DType.FLOAT16 else lowest)
    if max(w.dilations) > 1:  # the largest of the input shifted to every place of the window
        return reduce(partial(e.apply, "Maximum"), _shifts(c, x, w))
    return _pool("Max", c, x, w)


def _pool(kind: str, c: Call, x: Value, w: Window) -> Value:
    """Without padding and dilation, along one, two or three axes."""
    e, axes = c.e, max(2, len(w.size))
    w, x = w.along(axes), _spread(c.e, x, axes)
    shape = (*c.result[:2], *(1,) * (axes + 2 - len(c.result)), *c.result[2:])
    attributes: dict[str, Any] = {
        "pad_mode": "VALID", "output_names": ["output"], "kernel_size": (1, 1, *w.size), "format": "NCHW",
        "strides": (1, 1, *w.strides), "input_names": ["x"],
    }  # fmt: skip
    if axes > 3:
        raise Unsupported(f"a pool along {counted(axes, 'axis')}")
    if axes == 3:
        attributes |= {"format": "NCDHW", "pad_list": (0,) * 6, "ceil_mode": 0}
        if kind == "Avg":
            attributes |= {"input_names": ["input"], "pad": (0,) * 6, "ceil_mode": False, "divisor_override": 0,
                           "count_include_pad": True}  # fmt: skip
        made = e.emit(f"{kind}Pool3D", [x], shape, attributes, CLASS)
    elif kind == "Avg":
        made = e.emit("AvgPool", [x, w.size, w.strides, 2, 0], shape)
    else:
        made = e.emit("MaxPool", [x], shape, attributes, CLASS)
    return e.reshape(made, c.result)


def _shifts(c: Call, x: Value, w: Window) -> list[Value]:
    """For every place of the window, what each window sees there."""
    found = []
    for place in itertools.product(*map(range, w.size)):
        seen = _seen(place, w, c.result[2:])
        ends = [*shape_of(x)[:2], *(s.stop for s in seen)]
        found.append(c.e.slice(x, [0, 0, *(s.start for s in seen)], ends, [1, 1, *w.strides]))
    return found


def _seen(place: Sequence[int], w: Window, steps: Sequence[int]) -> list[slice]:
    begin = [p * d for p, d in zip(place, w.dilations, strict=True)]
    return [slice(b, b + (n - 1) * s + 1, s) for b, n, s in zip(begin, steps, w.strides, strict=True)]


def _average_pool(c: Call) -> Value:
    """Each window's sum over how many places of the input (and of the padding) it sees, which is known now."""
    e, w, sizes = c.e, _pool_window(c), c.shape()[2:]
    marked = np.zeros([n + b + a for n, b, a in zip(sizes, w.before, w.after, strict=True)])
    inside = [slice(b, b + n) for n, b in zip(sizes, w.before, strict=True)]
    if c.attribute("count_include_pad"):
        said = _same(c, _window(c, w.size))
        inside = [slice(0, n + b + a) for n, b, a in zip(sizes, said.before, said.after, strict=True)]
    marked[tuple(inside)] = 1
    counts = sum(marked[tuple(_seen(place, w, c.result[2:]))] for place in itertools.product(*map(range, w.size)))
    places = math.prod(w.size)
    x = e.pad(c.value(0), w.before, w.after)
    if max(w.dilations) == 1:
        mean = _pool("Avg", c, x, w)
    else:
        mean = e.mul(reduce(e.add, _shifts(c, x, w)), 1 / places)
    if np.all(counts == places):
        return mean
    return e.mul(mean, e.constant((places / np.maximum(counts, 1)).astype(dtype_of(mean).value)))


def _global_pool(name: str, c: Call) -> Value:
    return c.e.reduce(name, c.value(0), range(2, c.rank()), True)


RULES: dict[str, Rule] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": partial(_global_pool, "ReduceMean"),
    "GlobalMaxPool": partial(_global_pool, "ReduceMax"),
}
