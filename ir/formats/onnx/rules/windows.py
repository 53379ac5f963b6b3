"""What a window sees as it moves along one, two or three axes: convolutions, their transposes, pools."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np

from ....core.errors import FormatError
from ....core.graph import Node, Value
from ....core.types import DType
from ....core.wording import counted
from ..call import Call
from ..emitter import Emitter
from ..operators import Entry, Unsupported, dtype_of, shape_of
from ..window import Window
from ..writing import Names, Writing, plain

# -- reading -----------------------------------------------------------------------------------------------------------


def _window(c: Call, size: Sequence[int] | None) -> Window:
    """From the attributes that convolutions and pools share; without the padding that "same" stands for."""
    axes = c.rank() - 2
    strides, dilations = (tuple(c.attribute(name) or (1,) * axes) for name in ("strides", "dilations"))
    pads = tuple(c.attribute("pads") or (0,) * 2 * axes)
    fits = size is not None and len(size) == len(strides) == len(dilations) == axes and len(pads) == 2 * axes
    if size is None or not fits or axes < 1 or min(*strides, *dilations, *size) < 1:
        raise FormatError(f"{c.node.op_type} along {counted(axes, 'axis')}: window {size}, strides {strides}, "
                          f"dilations {dilations}, pads {pads}")  # fmt: skip
    return Window(tuple(size), strides, dilations, pads[:axes], pads[axes:])


def _same(c: Call, window: Window) -> Window:
    """With the padding that "same" stands for."""
    mode = c.attribute("auto_pad")
    return window.padded(c.shape()[2:], c.result[2:], mode == "SAME_UPPER") if mode.startswith("SAME") else window


def _spread(shape: Sequence[int], axes: int) -> tuple[int, ...]:
    """With axes of length 1 behind the channels, so that there are so many behind them."""
    return (*shape[:2], *(1,) * (axes + 2 - len(shape)), *shape[2:])


def _spread_out(e: Emitter, x: Value, axes: int) -> Value:
    return e.reshape(x, _spread(shape_of(x), axes))


def _attributes(w: Window, group: int, channels: int) -> dict[str, Any]:
    return {
        "kernel_size": w.size, "mode": 1, "out_channel": channels, "pad": w.pads, "pad_mode": "pad", "format": "NCHW",
        "pad_list": w.pads, "groups": group, "stride": (1, 1, *w.strides), "group": group,
        "dilation": (1, 1, *w.dilations),
    }  # fmt: skip


def _read_conv(c: Call) -> Value:
    e, x, weight, group = c.e, c.value(0), c.value(1, True), c.attribute("group")
    if shape_of(x)[1] != shape_of(weight)[1] * group:
        raise FormatError(f"Conv of {list(shape_of(x))} with {list(shape_of(weight))}, group {group}")
    w = _same(c, _window(c, shape_of(weight)[2:]))
    axes = max(2, len(w.size))
    w, shape = w.along(axes), _spread(c.result, axes)
    attributes = _attributes(w, group, shape[1])
    if axes == 3:
        if group != 1 or max(w.dilations) > 1:
            raise Unsupported("a convolution in three dimensions with groups or dilation, which MindSpore's CPU lacks")
        attributes |= {"offset_x": 0, "format": "NCDHW", "stride": w.strides, "strides": (1, 1, *w.strides),
                       "dilations": (1,) * 5, "dilation": 1}  # fmt: skip
    elif axes != 2:
        raise Unsupported(counted(axes, "spatial axis"))
    made = e.emit(f"Conv{axes}D", [_spread_out(e, x, axes), _spread_out(e, weight, axes)], shape, attributes)
    return e.bias(e.reshape(made, c.result), c.optional(2))


def _read_conv_transpose(c: Call) -> Value:
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
    x, weight, w, sizes = _spread_out(e, x, 2), _spread_out(e, weight, 2), w.along(2), _spread(c.result, 2)[2:]
    whole = [s * (n - 1) + k for s, n, k in zip(w.strides, shape_of(x)[2:], w.extent, strict=True)]
    channels, each = shape_of(weight)[1], shape_of(x)[1] // group
    attributes = {**_attributes(w.unpadded(), 1, each), "pad_mode": "PAD"}
    shape = (shape_of(x)[0], channels, *whole)
    made = []
    for i in range(group):
        part = [e.part(v, axis, i * each, (i + 1) * each) for v, axis in ((x, 1), (weight, 0))]
        made.append(e.emit("Conv2DTranspose", [*part, shape], shape, attributes))
    behind = [n + b - d for n, b, d in zip(sizes, w.before, whole, strict=True)]
    cut = e.pad(e.concat(made, 1), [-b for b in w.before], behind)
    return e.bias(e.reshape(cut, c.result), c.optional(2))


def _read_max_pool(c: Call) -> Value:
    e, x, w = c.e, c.value(0), _same(c, _window(c, c.attribute("kernel_shape")))
    w = w.reaching(c.shape()[2:], c.result[2:])
    if c.wants(1):
        raise Unsupported("the places of the largest")
    lowest = -3.4028234663852886e38 if dtype_of(x).is_float else float(np.iinfo(dtype_of(x).value).min)
    x = e.pad(x, w.before, w.after, -65504.0 if dtype_of(x) is DType.FLOAT16 else lowest)
    if max(w.dilations) > 1:
        return reduce(partial(e.apply, "Maximum"), _shifts(c, x, w))
    return _pool("Max", c, x, w)


def _pool(kind: str, c: Call, x: Value, w: Window) -> Value:
    """Without padding and dilation, along one, two or three axes."""
    axes = max(2, len(w.size))
    if axes > 3:
        raise Unsupported(f"a pool along {counted(axes, 'axis')}")
    w, x, shape = w.along(axes), _spread_out(c.e, x, axes), _spread(c.result, axes)
    if kind == "Avg" and axes == 2:
        return c.e.reshape(c.e.emit("AvgPool", [x, w.size, w.strides, 2, 0], shape), c.result)
    attributes: dict[str, Any] = {
        "pad_mode": "VALID", "kernel_size": (1, 1, *w.size), "format": "NCHW", "strides": (1, 1, *w.strides),
    }  # fmt: skip
    if axes == 3:
        attributes |= {"format": "NCDHW", "pad_list": (0,) * 6, "ceil_mode": 0}
    if kind == "Avg":
        attributes |= {"pad": (0,) * 6, "ceil_mode": False, "divisor_override": 0, "count_include_pad": True}
    return c.e.reshape(c.e.emit(f"{kind}Pool{'3D' if axes == 3 else ''}", [x], shape, attributes), c.result)


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


def _read_average_pool(c: Call) -> Value:
    """Each window's sum over how many places of the input (and of the padding) it sees, which is known now."""
    e, said, sizes = c.e, _same(c, _window(c, c.attribute("kernel_shape"))), c.shape()[2:]
    w, counting = said.reaching(sizes, c.result[2:]), bool(c.attribute("count_include_pad"))
    marked = np.zeros([n + b + a for n, b, a in zip(sizes, w.before, w.after, strict=True)])
    edges = zip(sizes, w.before, said.after, strict=True)
    marked[tuple(slice(0, n + b + a) if counting else slice(b, b + n) for n, b, a in edges)] = 1
    counts = sum(marked[tuple(_seen(place, w, c.result[2:]))] for place in itertools.product(*map(range, w.size)))
    places = math.prod(w.size)
    x = e.pad(c.value(0), w.before, w.after)
    mean = _pool("Avg", c, x, w) if max(w.dilations) == 1 else e.mul(reduce(e.add, _shifts(c, x, w)), 1 / places)
    if np.all(counts == places):
        return mean
    return e.mul(mean, e.constant((places / np.maximum(counts, 1)).astype(dtype_of(mean).value)))


# -- writing -----------------------------------------------------------------------------------------------------------


def _written(node: Node, axes: int, size: Sequence[int] | None = None, transposed: bool = False) -> Window:
    """The window of a primitive, with the padding that its mode says: for "same", what leads from the sizes to so many
    windows. ``size``: where it is not an attribute."""
    layout, rank = node.attributes.get("format", "NCHW"), len(shape_of(node.operand(0)))
    if layout not in ("NCHW", "NCDHW"):
        raise Unsupported(f"data in the layout {layout}")
    if rank != axes + 2:
        raise Unsupported(f"an input of {counted(rank, 'axis')}")
    size = tuple(size or _spatial(node, axes, "kernel_size", "ksize"))
    strides, dilations = _spatial(node, axes, "stride", "strides"), _spatial(node, axes, "dilation", "dilations")
    window = Window(size, strides, dilations, (0,) * axes, (0,) * axes)
    mode = str(node.attributes.get("pad_mode", "valid")).lower()
    if mode == "valid":
        return window
    if mode == "same":
        return _padded(node, window, transposed)
    pads: Any = node.attributes.get("pad_list", node.attributes.get("pad", ()))
    flat = tuple(int(v) for v in pads)[-2 * axes :]
    return replace(window, before=flat[::2], after=flat[1::2])


def _padded(node: Node, window: Window, transposed: bool = False) -> Window:
    sizes, steps = shape_of(node.operand(0))[2:], shape_of(node)[2:]
    if min(*sizes, *steps) < 0:
        raise Unsupported("an image of an open size")
    return window.padded(*((steps, sizes) if transposed else (sizes, steps)), True)


def _spatial(node: Node, axes: int, *names: str) -> tuple[int, ...]:
    """An attribute of one number for all axes, or one for each, the batch and channel axes in front or not."""
    value: Any = next((node.attributes[name] for name in names if name in node.attributes), 1)
    return (int(value),) * axes if isinstance(value, (int, float)) else tuple(int(v) for v in value[-axes:])


def _said(window: Window, **more: Any) -> dict[str, Any]:
    """A window as the attributes of an operator: of the pads all in front, then all behind. AveragePool has no
    dilations."""
    attributes = {"kernel_shape": window.size, "strides": window.strides, "dilations": window.dilations,
                  "pads": window.before + window.after}  # fmt: skip
    if "count_include_pad" in more:
        del attributes["dilations"]
    return {**{name: list(value) for name, value in attributes.items()}, **more}


def _write_conv(axes: int, w: Writing, node: Node) -> Names:
    window = _written(node, axes, shape_of(node.operand(1))[2:])
    return w.add("Conv", w.inputs(node, 2), **_said(window, group=int(node.attributes.get("group", 1))))


def _write_conv_transpose(w: Writing, node: Node) -> Names:
    """The result's sizes say what comes behind, beyond what the padding takes away. The convolution that this is the
    transpose of goes from the result's sizes to those of the input."""
    window = _written(node, 2, shape_of(node.operand(1))[2:], transposed=True)
    sizes, steps = shape_of(node)[2:], shape_of(node.operand(0))[2:]
    if min(*sizes, *steps) < 0:
        raise Unsupported("an image of an open size")
    places = zip(sizes, steps, window.strides, window.extent, window.before, window.after, strict=True)
    more = [n - ((m - 1) * s + k - b - a) for n, m, s, k, b, a in places]
    if min(more) < 0:
        raise Unsupported("a padding that takes more away than there is")
    group = int(node.attributes.get("group", 1))
    return w.add("ConvTranspose", w.inputs(node, 2), **_said(window, group=group, output_padding=more))


def _write_max_pool(axes: int, w: Writing, node: Node) -> Names:
    if node.attributes.get("ceil_mode"):
        raise Unsupported("windows that reach past the padding")
    return w.add("MaxPool", w.inputs(node, 1), **_said(_written(node, axes)))


def _write_max_pool_with_places(axes: int, w: Writing, node: Node) -> Names:
    """Its values; the places are counted in another way."""
    half = _spatial(node, axes, "pads") if "pads" in node.attributes else (0,) * axes
    window, ceil = replace(_written(node, axes), before=half, after=half), bool(node.attributes.get("ceil_mode"))
    return (w.add("MaxPool", w.inputs(node, 1), **_said(window, ceil_mode=int(ceil))), None)


def _write_avg_pool(w: Writing, node: Node) -> Names:
    """(x, kernel, strides, mode, layout): mode 1 is "same", 2 "valid"."""
    kernel, strides, mode, layout = (plain(node, i) for i in range(1, 5))
    if layout != 0 or mode not in (1, 2):
        raise Unsupported("another layout or padding")
    size, steps = ((v, v) if isinstance(v, int) else tuple(v)[-2:] for v in (kernel, strides))
    window = Window(size, steps, (1, 1), (0, 0), (0, 0))
    window = _padded(node, window) if mode == 1 else window
    return w.add("AveragePool", w.inputs(node, 1), **_said(window, count_include_pad=0))


def _write_avg_pool3d(w: Writing, node: Node) -> Names:
    if node.attributes.get("ceil_mode") or node.attributes.get("divisor_override"):
        raise Unsupported("windows that reach past the padding, or another divisor")
    include = int(bool(node.attributes.get("count_include_pad", True)))
    return w.add("AveragePool", w.inputs(node, 1), **_said(_written(node, 3), count_include_pad=include))


def _write_adaptive_pool(w: Writing, node: Node) -> Names:
    """Bins of equal sizes are windows side by side. Others are products with matrices of shares, one for each axis."""
    x = node.operand(0)
    sizes, steps = shape_of(x)[-2:], shape_of(node)[-2:]
    if min(*sizes, *steps) < 1:
        raise Unsupported("an image of an open size")
    (name,) = w.inputs(node, 1)
    pooled = len(shape_of(x)) == 4 and all(size % n == 0 for size, n in zip(sizes, steps, strict=True))
    if pooled and steps == (1, 1):
        return w.add("GlobalAveragePool", [name])
    if pooled:
        window = [size // n for size, n in zip(sizes, steps, strict=True)]
        return w.add("AveragePool", [name], kernel_shape=window, strides=window)
    rows, columns = (_shares(size, n).astype(dtype_of(x).value) for size, n in zip(sizes, steps, strict=True))
    return w.add("MatMul", [w.add("MatMul", [w.constant(rows), name]), w.constant(columns.T)])


def _shares(size: int, bins: int) -> np.ndarray:
    """How much each of so many places counts in the mean of each bin. Bins overlap where they are of unequal sizes."""
    first = np.arange(bins)[:, None] * size // bins
    behind = -(-np.arange(1, bins + 1)[:, None] * size // bins)
    place = np.arange(size)
    return ((first <= place) & (place < behind)) / (behind - first)


TABLE = (
    Entry("Conv", "Conv2D", _read_conv, partial(_write_conv, 2)),
    Entry("", "Conv3D", None, partial(_write_conv, 3)),
    Entry("ConvTranspose", "Conv2DTranspose", _read_conv_transpose, _write_conv_transpose),
    Entry("", "Conv2DBackpropInput", None, _write_conv_transpose),
    Entry("MaxPool", "MaxPool", _read_max_pool, partial(_write_max_pool, 2)),
    Entry("", "MaxPool3D", None, partial(_write_max_pool, 3)),
    Entry("", "MaxPoolWithArgmaxV2", None, partial(_write_max_pool_with_places, 2)),
    Entry("", "MaxPool3DWithArgmax", None, partial(_write_max_pool_with_places, 3)),
    Entry("AveragePool", "AvgPool", _read_average_pool, _write_avg_pool),
    Entry("", "AvgPool3D", None, _write_avg_pool3d),
    Entry("", "AdaptiveAvgPool2D", None, _write_adaptive_pool),
)
