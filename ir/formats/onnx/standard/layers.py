"""Products, convolutions, pools, normalizations and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ....core.graph import Constant, Node
from ....core.wording import counted
from ..operators import Unsupported, dtype_of, shape_of
from ..window import Window
from .writing import Names, Rule, Writing, plain


def _matmul(w: Writing, node: Node) -> Names:
    names = []
    for i in (0, 1):
        value = node.operand(i)
        name = w.name(value)
        if plain(node, i + 2, False):
            rank = len(shape_of(value))
            order = [*range(rank - 2), rank - 1, rank - 2]
            name = w.add("Transpose", [name], perm=order)
        names.append(name)
    return w.add("MatMul", names)


def _dense(w: Writing, node: Node) -> Names:
    """x times the transposed weight, and a bias where there is one."""
    weight = w.add("Transpose", [w.name(node.operand(1))], perm=[1, 0])
    product = w.add("MatMul", [w.name(node.operand(0)), weight])
    bias = node.operand(2) if node.num_operands > 2 else None
    if bias is None or (isinstance(bias, Constant) and bias.value is None):
        return product
    return w.add("Add", [product, w.name(bias)])


def _bias_add(w: Writing, node: Node) -> Names:
    x, bias = node.operands[:2]
    name = w.name(bias)
    if len(shape_of(x)) > 2:
        name = w.add("Reshape", [name, w.ints([shape_of(bias)[0], *[1] * (len(shape_of(x)) - 2)])])
    return w.add("Add", [w.name(x), name])


def _window(node: Node, axes: int, size: Sequence[int] | None = None) -> Window:
    """Without padding. ``size``: where it is not an attribute."""
    layout, rank = node.attributes.get("format", "NCHW"), len(shape_of(node.operand(0)))
    if layout not in ("NCHW", "NCDHW"):
        raise Unsupported(f"data in the layout {layout}")
    if rank != axes + 2:
        raise Unsupported(f"an input of {counted(rank, 'axis')}")
    size = _spatial(node, axes, "kernel_size", "ksize") if size is None else tuple(size)
    strides, dilations = _spatial(node, axes, "stride", "strides"), _spatial(node, axes, "dilation", "dilations")
    return Window(size, strides, dilations, (0,) * axes, (0,) * axes)


def _spatial(node: Node, axes: int, *names: str) -> tuple[int, ...]:
    """An attribute of one number for all axes, or one for each, the batch and channel axes in front or not."""
    value: Any = next((node.attributes[name] for name in names if name in node.attributes), 1)
    return (int(value),) * axes if isinstance(value, (int, float)) else tuple(int(v) for v in value[-axes:])


def _padded(node: Node, window: Window, sizes: Sequence[int], steps: Sequence[int]) -> Window:
    """With the padding that its mode says: for "same", what leads from the sizes to so many windows."""
    mode = str(node.attributes.get("pad_mode", "valid")).lower()
    if mode == "valid":
        return window
    if min(*sizes, *steps) < 0:
        raise Unsupported("an image of an open size")
    if mode == "same":
        return window.padded(sizes, steps, True)
    pads: Any = node.attributes.get("pad_list", node.attributes.get("pad", ()))
    flat = tuple(int(v) for v in pads)[-2 * len(sizes) :]
    return replace(window, before=flat[::2], after=flat[1::2])


def _seen(window: Window, *without: str) -> dict[str, list[int]]:
    """A window as the attributes of an operator: of the pads all in front, then all behind."""
    attributes = {"kernel_shape": window.size, "strides": window.strides, "dilations": window.dilations,
                  "pads": window.before + window.after}  # fmt: skip
    return {name: list(value) for name, value in attributes.items() if name not in without}


def _conv(axes: int, w: Writing, node: Node) -> Names:
    window = _window(node, axes, shape_of(node.operand(1))[2:])
    window = _padded(node, window, shape_of(node.operand(0))[2:], shape_of(node)[2:])
    return w.add("Conv", w.inputs(node, 2), group=int(node.attributes.get("group", 1)), **_seen(window))


def _conv_transpose(w: Writing, node: Node) -> Names:
    """The result's sizes say what comes behind, beyond what the padding takes away. The convolution that this is the
    transpose of goes from the result's sizes to those of the input."""
    window = _window(node, 2, shape_of(node.operand(1))[2:])
    sizes, steps = shape_of(node)[2:], shape_of(node.operand(0))[2:]
    window = _padded(node, window, sizes, steps)
    places = zip(sizes, steps, window.strides, window.extent, window.before, window.after, strict=True)
    more = [n - ((m - 1) * s + k - b - a) for n, m, s, k, b, a in places]
    if min(more) < 0:
        raise Unsupported("a padding that takes more away than there is")
    group = int(node.attributes.get("group", 1))
    return w.add("ConvTranspose", w.inputs(node, 2), group=group, output_padding=more, **_seen(window))


def _max_pool(axes: int, w: Writing, node: Node) -> Names:
    if node.attributes.get("ceil_mode"):
        raise Unsupported("windows that reach past the padding")
    window = _padded(node, _window(node, axes), shape_of(node.operand(0))[2:], shape_of(node)[2:])
    return w.add("MaxPool", w.inputs(node, 1), **_seen(window))


def _max_pool_with_places(axes: int, w: Writing, node: Node) -> Names:
    """Its values; the places are counted in another way."""
    half = _spatial(node, axes, "pads") if "pads" in node.attributes else (0,) * axes
    window = replace(_window(node, axes), before=half, after=half)
    ceil = int(bool(node.attributes.get("ceil_mode")))
    return (w.add("MaxPool", w.inputs(node, 1), ceil_mode=ceil, **_seen(window)), None)


def _avg_pool(w: Writing, node: Node) -> Names:
    """(x, kernel, strides, mode, layout): mode 1 is "same", 2 "valid"."""
    kernel, strides, mode, layout = (plain(node, i) for i in range(1, 5))
    if layout != 0 or mode not in (1, 2):
        raise Unsupported("another layout or padding")
    size, steps = ((v, v) if isinstance(v, int) else tuple(v)[-2:] for v in (kernel, strides))
    window = Window(size, steps, (1, 1), (0, 0), (0, 0))
    if mode == 1:
        if min(*shape_of(node.operand(0))[2:], *shape_of(node)[2:]) < 0:
            raise Unsupported("an image of an open size")
        window = window.padded(shape_of(node.operand(0))[2:], shape_of(node)[2:], True)
    return w.add("AveragePool", w.inputs(node, 1), count_include_pad=0, **_seen(window, "dilations"))


def _avg_pool3d(w: Writing, node: Node) -> Names:
    if node.attributes.get("ceil_mode") or node.attributes.get("divisor_override"):
        raise Unsupported("windows that reach past the padding, or another divisor")
    window = _padded(node, _window(node, 3), shape_of(node.operand(0))[2:], shape_of(node)[2:])
    include = int(bool(node.attributes.get("count_include_pad", True)))
    return w.add("AveragePool", w.inputs(node, 1), count_include_pad=include, **_seen(window, "dilations"))


def _adaptive_avg_pool(w: Writing, node: Node) -> Names:
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


def _batch_norm(w: Writing, node: Node) -> Names:
    """By the statistics, in training too: what an inference computes."""
    if plain(node, 8, 0) != 0:
        raise Unsupported("another layout than channels first")
    y = w.add("BatchNormalization", w.inputs(node, 5), epsilon=float(plain(node, 6, 1e-5)))
    return (y, None, None, None, None)


def _layer_norm(w: Writing, node: Node) -> Names:
    begin, parameters, epsilon = (plain(node, i) for i in (3, 4, 5))
    if begin % len(shape_of(node.operand(0))) != parameters % len(shape_of(node.operand(0))):
        raise Unsupported("a weight over other axes than those of the mean")
    y = w.add("LayerNormalization", w.inputs(node, 3), axis=int(begin), epsilon=float(epsilon))
    return (y, None, None)


def _group_norm(w: Writing, node: Node) -> Names:
    """Each group as an instance, then weight and bias for each channel."""
    x, groups = node.operand(0), plain(node, 1)
    like = dtype_of(x).value
    ones, zeros = w.constant(np.ones(groups, like)), w.constant(np.zeros(groups, like))
    shape = shape_of(x)
    flat = w.add("Reshape", [w.name(x), w.ints([0, groups, -1])])
    normal = w.add("InstanceNormalization", [flat, ones, zeros], epsilon=float(plain(node, 4)))
    y = w.add("Reshape", [normal, w.ints([-1, *shape[1:]])])
    for i, op in ((2, "Mul"), (3, "Add")):
        own = w.ints([shape[1], *[1] * (len(shape) - 2)])
        y = w.add(op, [y, w.add("Reshape", [w.name(node.operand(i)), own])])
    return (y, None, None)


def _reduce(op: str, w: Writing, node: Node) -> Names:
    """(x, axes, keep, and of ReduceSum whether no axes mean none)"""
    (x,) = w.inputs(node, 1)
    given = plain(node, 1, ())
    if not isinstance(given, int) and not given and plain(node, 3, False):
        return x
    return _reduced(op, w, node, x)


def _reduced(op: str, w: Writing, node: Node, x: str) -> str:
    """``x`` along the axes that operand 1 names: all where it names none, or is None."""
    given, rank = plain(node, 1, ()), len(shape_of(node.operand(0)))
    if op != "ReduceSum" and not rank:
        return x
    named = (given,) if isinstance(given, int) else given
    axes = sorted(int(a) % rank for a in named) if rank and named else range(rank)
    return w.add(op, [x, w.ints(axes)], keepdims=int(bool(plain(node, 2, False))))


def _reduce_ext(op: str, w: Writing, node: Node) -> Names:
    """(x, axes or None for all, keep, element type or None)"""
    if plain(node, 3) is not None:
        raise Unsupported("another element type for the result")
    return _reduced(op, w, node, w.name(node.operand(0)))


def _logical_reduce(op: str, w: Writing, node: Node) -> Names:
    """Truth values as numbers: the least of them, or the largest."""
    return w.add("Cast", [_reduced(op, w, node, w.add("Cast", w.inputs(node, 1), to=6))], to=9)


def _arg(op: str, w: Writing, node: Node) -> Names:
    found = w.add(op, w.inputs(node, 1), axis=int(plain(node, 1, -1)), keepdims=0)
    return found if dtype_of(node).value == "int64" else w.add("Cast", [found], to=6)


def _extreme_with_place(op: str, arg: str, w: Writing, node: Node) -> Names:
    axis, keep = int(plain(node, 1, 0)), int(bool(plain(node, 2, False)))
    x = w.name(node.operand(0))
    return (w.add(arg, [x], axis=axis, keepdims=keep), w.add(op, [x, w.ints([axis])], keepdims=keep))


def _resize(mode: str, w: Writing, node: Node) -> Names:
    x = node.operand(0)
    align, half = bool(plain(node, 2, False)), bool(plain(node, 3, False))
    how = "align_corners" if align else "half_pixel" if half else "asymmetric"
    if mode == "nearest" and half:
        raise Unsupported("nearest with centres of half a pixel")
    assert len(shape_of(x)) == 4
    more: dict[str, Any] = {"axes": [2, 3], "coordinate_transformation_mode": how}
    if mode == "nearest":
        more["nearest_mode"] = "round_prefer_ceil" if align else "floor"
    return w.add("Resize", [w.name(x), "", "", w.ints(shape_of(node)[2:])], mode=mode, **more)


_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")

RULES: dict[str, Rule] = {
    "MatMul": _matmul,
    "BatchMatMul": _matmul,
    "MatMulExt": _matmul,
    "Dense": _dense,
    "BiasAdd": _bias_add,
    "Conv2D": partial(_conv, 2),
    "Conv3D": partial(_conv, 3),
    "Conv2DTranspose": _conv_transpose,
    "Conv2DBackpropInput": _conv_transpose,
    "MaxPool": partial(_max_pool, 2),
    "MaxPool3D": partial(_max_pool, 3),
    "MaxPoolWithArgmaxV2": partial(_max_pool_with_places, 2),
    "MaxPool3DWithArgmax": partial(_max_pool_with_places, 3),
    "AvgPool": _avg_pool,
    "AvgPool3D": _avg_pool3d,
    "AdaptiveAvgPool2D": _adaptive_avg_pool,
    "BatchNorm": _batch_norm,
    "LayerNorm": _layer_norm,
    "GroupNorm": _group_norm,
    **{name: partial(_reduce, name) for name in _REDUCTIONS},
    "SumExt": partial(_reduce_ext, "ReduceSum"),
    "MeanExt": partial(_reduce_ext, "ReduceMean"),
    "ReduceAll": partial(_logical_reduce, "ReduceMin"),
    "ReduceAny": partial(_logical_reduce, "ReduceMax"),
    "Argmax": partial(_arg, "ArgMax"),
    "Argmin": partial(_arg, "ArgMin"),
    "ArgMaxWithValue": partial(_extreme_with_place, "ReduceMax", "ArgMax"),
    "ArgMinWithValue": partial(_extreme_with_place, "ReduceMin", "ArgMin"),
    "ResizeNearestNeighbor": partial(_resize, "nearest"),
    "ResizeNearestNeighborV2": partial(_resize, "nearest"),
    "ResizeBilinearV2": partial(_resize, "linear"),
}
