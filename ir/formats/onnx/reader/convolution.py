"""Convolutions along one, two or three axes, and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....core.errors import FormatError
from ....core.graph import Value
from ....core.wording import counted
from ..vocabulary import Unsupported, shape_of
from .call import Call, Rule
from .emitter import CLASS, Emitter
from .shape import pad


@dataclass
class Window:
    """A window that moves along the spatial axes: ``before`` and ``after`` are what is padded in front and behind."""

    size: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]

    @property
    def extent(self) -> list[int]:
        """How far each window reaches."""
        return [(k - 1) * d + 1 for k, d in zip(self.size, self.dilations, strict=True)]

    def steps(self, sizes: Sequence[int]) -> list[int]:
        """How many windows fit along each axis."""
        padded = (n + b + a for n, b, a in zip(sizes, self.before, self.after, strict=True))
        return [(n - k) // s + 1 for n, k, s in zip(padded, self.extent, self.strides, strict=True)]

    def unpadded(self) -> Window:
        none = [0] * len(self.size)
        return Window(self.size, self.strides, self.dilations, none, none)


def window_of(c: Call, size: Sequence[int]) -> Window:
    """From the attributes that convolutions and pools share."""
    axes = len(size)
    strides = list(c.attribute("strides") or [1] * axes)
    dilations = list(c.attribute("dilations") or [1] * axes)
    pads = list(c.attribute("pads") or [0] * 2 * axes)
    if not len(strides) == len(dilations) == axes or len(pads) != 2 * axes or min(strides + dilations + list(size)) < 1:
        raise FormatError(
            f"{c.op_type} along {counted(axes, 'axis')}: strides {strides}, dilations {dilations}, pads {pads}"
        )
    window = Window(list(size), strides, dilations, pads[:axes], pads[axes:])
    mode = c.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        for i, n in enumerate(c.shape(0)[2:]):
            steps = -(-n // strides[i])
            total = max((steps - 1) * strides[i] + window.extent[i] - n, 0)
            small, large = total // 2, total - total // 2
            window.before[i], window.after[i] = (small, large) if mode == "SAME_UPPER" else (large, small)
    return window


def _conv(c: Call) -> Value:
    e, x, weight = c.emitter, c.value(0), c.parameter(1)
    group = c.attribute("group", 1)
    spatial = len(shape_of(weight)) - 2
    if spatial != len(shape_of(x)) - 2 or shape_of(x)[1] != shape_of(weight)[1] * group:
        raise FormatError(f"Conv of {list(shape_of(x))} with {list(shape_of(weight))}, group {group}")
    window = window_of(c, shape_of(weight)[2:])
    if spatial == 1:
        x, weight = e.add_axis(x, 2), e.add_axis(weight, 2)
        x = e.drop_axis(_conv2d(e, x, weight, _with_axis(window), group), 2)
    elif spatial == 2:
        x = _conv2d(e, x, weight, window, group)
    elif spatial == 3:
        x = _conv3d(e, x, weight, window, group)
    else:
        raise Unsupported(counted(spatial, "spatial axis"))
    return _biased(c, x)


def _biased(c: Call, x: Value) -> Value:
    e = c.emitter
    if not c.has(2):
        return x
    if len(shape_of(x)) == 4:
        return e.emit("BiasAdd", [x, c.parameter(2), 0], shape_of(x))
    ones = (1,) * (len(shape_of(x)) - 2)
    return e.add(x, e.reshape(c.parameter(2), (*c.shape(2), *ones)))


def _with_axis(w: Window) -> Window:
    """With an axis of length 1 in front."""
    return Window([1, *w.size], [1, *w.strides], [1, *w.dilations], [0, *w.before], [0, *w.after])


def _pads(w: Window) -> tuple[int, ...]:
    return tuple(n for pair in zip(w.before, w.after, strict=True) for n in pair)


def _conv2d(e: Emitter, x: Value, weight: Value, w: Window, group: int) -> Value:
    channels = shape_of(weight)[0]
    pads = _pads(w)
    attributes = {
        "kernel_size": tuple(w.size), "mode": 1, "out_channel": channels, "input_names": ["x", "w"], "pad": pads,
        "pad_mode": "pad", "format": "NCHW", "pad_list": pads, "groups": group, "stride": (1, 1, *w.strides),
        "group": group, "dilation": (1, 1, *w.dilations), "output_names": ["output"],
    }  # fmt: skip
    return e.emit("Conv2D", [x, weight], (shape_of(x)[0], channels, *w.steps(shape_of(x)[2:])), attributes, CLASS)


def _conv3d(e: Emitter, x: Value, weight: Value, w: Window, group: int) -> Value:
    if group != 1 or w.dilations != [1, 1, 1]:
        raise Unsupported("a convolution in three dimensions with groups or dilation, which MindSpore's CPU lacks")
    channels = shape_of(weight)[0]
    pads = _pads(w)
    attributes = {
        "kernel_size": tuple(w.size), "mode": 1, "out_channel": channels, "input_names": ["x", "w"], "pad": pads,
        "offset_x": 0, "pad_mode": "pad", "format": "NCDHW", "pad_list": pads, "groups": 1, "stride": tuple(w.strides),
        "dilations": (1, 1, 1, 1, 1), "strides": (1, 1, *w.strides), "group": 1, "dilation": 1,
        "output_names": ["output"],
    }  # fmt: skip
    return e.emit("Conv3D", [x, weight], (shape_of(x)[0], channels, *w.steps(shape_of(x)[2:])), attributes, CLASS)


def _conv_transpose(c: Call) -> Value:
    e, x, weight = c.emitter, c.value(0), c.parameter(1)
    group = c.attribute("group", 1)
    spatial = len(shape_of(weight)) - 2
    if spatial != len(shape_of(x)) - 2 or shape_of(x)[1] != shape_of(weight)[0]:
        raise FormatError(f"ConvTranspose of {list(shape_of(x))} with {list(shape_of(weight))}")
    window = window_of(c, shape_of(weight)[2:])
    sizes = _transposed_sizes(c, window, shape_of(x)[2:])
    if spatial == 1:
        x, weight = e.add_axis(x, 2), e.add_axis(weight, 2)
        x = e.drop_axis(_conv2d_transpose(e, x, weight, _with_axis(window), [1, *sizes], group), 2)
    elif spatial == 2:
        x = _conv2d_transpose(e, x, weight, window, sizes, group)
    else:
        x = _by_dilation(e, x, weight, window, sizes, group)
    return _biased(c, x)


def _transposed_sizes(c: Call, w: Window, sizes: Sequence[int]) -> list[int]:
    """The result's sizes; sets the padding that leads to them."""
    more = list(c.attribute("output_padding") or [0] * len(sizes))
    whole = [s * (n - 1) + k for s, n, k in zip(w.strides, sizes, w.extent, strict=True)]
    asked = c.attribute("output_shape")
    mode = c.attribute("auto_pad", "NOTSET")
    if asked is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        asked = [n * s for n, s in zip(sizes, w.strides, strict=True)]
    if asked is None:
        return [n + m - b - a for n, m, b, a in zip(whole, more, w.before, w.after, strict=True)]
    asked = list(asked)[-len(sizes) :]
    for i, n in enumerate(asked):
        total = whole[i] + more[i] - n
        half = total // 2
        w.before[i], w.after[i] = (half, total - half) if mode == "SAME_UPPER" else (total - half, half)
    return asked


def _conv2d_transpose(e: Emitter, x: Value, weight: Value, w: Window, sizes: Sequence[int], group: int) -> Value:
    channels = shape_of(weight)[1] * group
    if group > 1:
        each = shape_of(x)[1] // group
        parts = [
            _conv2d_transpose(
                e, e.part(x, 1, i * each, (i + 1) * each), e.part(weight, 0, i * each, (i + 1) * each), w, sizes, 1
            )
            for i in range(group)
        ]
        return e.concat(parts, 1)
    # The kernel computes what fits the padding exactly; what output_padding adds behind has no input under it.
    whole = [s * (n - 1) + k for s, n, k in zip(w.strides, shape_of(x)[2:], w.extent, strict=True)]
    shape = (shape_of(x)[0], channels, *whole)
    pads = (0,) * 4
    attributes = {
        "kernel_size": tuple(w.size), "mode": 1, "out_channel": shape_of(x)[1],
        "input_names": ["out_backprop", "filter", "input_sizes"], "pad": pads, "pad_mode": "PAD", "format": "NCHW",
        "pad_list": pads, "groups": group, "stride": (1, 1, *w.strides), "group": group,
        "dilation": (1, 1, *w.dilations), "output_names": ["output"],
    }  # fmt: skip
    x = e.emit("Conv2DTranspose", [x, weight, shape], shape, attributes, CLASS)
    return _cut(e, x, w, sizes)


def _cut(e: Emitter, x: Value, w: Window, sizes: Sequence[int]) -> Value:
    """Takes the padding away: ``before`` in front, and behind what is more than ``sizes``."""
    behind = [n + b - d for n, b, d in zip(sizes, w.before, shape_of(x)[2:], strict=True)]
    return pad(e, x, [0, 0, *(-b for b in w.before)], [0, 0, *behind])


def _by_dilation(e: Emitter, x: Value, weight: Value, w: Window, sizes: Sequence[int], group: int) -> Value:
    """In three dimensions: an ordinary convolution, with the kernel turned round, of the input with zeros between."""
    if len(sizes) != 3:
        raise Unsupported(counted(len(sizes), "spatial axis"))
    if group != 1:
        raise Unsupported("a transposed convolution in three dimensions with groups")
    for i, s in enumerate(w.strides):
        if s > 1:
            shape = shape_of(x)
            axis = i + 2
            spread = pad(e, e.add_axis(x, axis + 1), [0] * 6, [s - 1 if j == axis + 1 else 0 for j in range(6)])
            x = e.reshape(spread, [d * s if j == axis else d for j, d in enumerate(shape)])
            x = e.part(x, axis, 0, (shape[axis] - 1) * s + 1)
    weight = e.transpose(weight, (1, 0, 2, 3, 4))
    turned = e.emit("ReverseV2", [weight, (2, 3, 4)], shape_of(weight))
    full = [k - 1 for k in w.extent]
    x = _conv3d(e, x, turned, Window(w.size, [1] * 3, w.dilations, full, full), 1)
    return _cut(e, x, w, sizes)


RULES: dict[str, Rule] = {"Conv": _conv, "ConvTranspose": _conv_transpose}
