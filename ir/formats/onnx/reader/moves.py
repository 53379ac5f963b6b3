"""Operators that only move elements: reshaping, joining, slicing, gathering, scattering, padding, resizing."""

from __future__ import annotations

import math
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from ....core.errors import FormatError
from ....core.graph import Value
from ....core.types import DType, TensorType
from ....core.wording import counted
from ..operators import CLASS, Unsupported, dtype_of, shape_of
from .call import Call, Rule
from .tensors import ELEMENT_TYPES


def _shape(c: Call) -> np.ndarray:
    return np.array(c.shape()[c.attribute("start") : c.attribute("end")], np.int64)


def _cast(c: Call) -> Value:
    to = c.attribute("to")
    if to not in ELEMENT_TYPES:
        raise Unsupported(f"it casts to ONNX element type {to}, which MindSpore lacks")
    return c.e.cast(c.value(0), ELEMENT_TYPES[to])


def _reshape(c: Call) -> Value:
    if len(c.inputs) > 1 and c.has(1):
        c.array(1)  # must be known
    return c.e.reshape(c.value(0), c.result)


def _concat(c: Call) -> Value:
    # What is empty adds nothing, and MindSpore takes no empty operands.
    values = [c.value(i) for i in range(len(c.inputs)) if math.prod(c.shape(i))] or [c.value(0)]
    return c.e.concat(values, c.axis())


def _split(c: Call) -> list[Value]:
    e, x, axis = c.e, c.value(0), c.axis()
    if c.has(1):
        c.array(1)  # must be known
    sizes = [type_.shape[axis] for type_ in c.types if type_ is not None]
    if sum(sizes) != shape_of(x)[axis] or len(sizes) != len(c.types):
        raise FormatError(f"Split of {shape_of(x)[axis]} into {sizes}, for {counted(len(c.types), 'output')}")
    if len(set(sizes)) == 1 and sizes[0] and len(sizes) > 1:
        return e.several("Split", [x, axis, len(sizes)], [t for t in c.types if t is not None])
    return [e.part(x, axis, end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]


def _expand(c: Call) -> Value:
    c.array(1)  # must be known
    return c.e.expand(c.value(0), c.result)


def _tile(c: Call) -> Value:
    repeats, x = tuple(c.ints(1)), c.value(0)
    return x if all(r == 1 for r in repeats) else c.e.emit("Tile", [x, repeats], c.result)


def _pad(c: Call) -> Value:
    e, x, rank, given = c.e, c.value(0), c.rank(), c.ints(1)
    axes = [c.axis(a) for a in c.ints(3)] if c.has(3) else list(range(rank))
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = given[i], given[i + len(axes)]
    mode = c.attribute("mode")
    if mode == "constant":
        value = c.array(2).reshape(-1) if c.has(2) else np.zeros(1)
        return e.pad(x, before, after, float(value[0]) if value.size else 0.0)
    for axis, (b, a) in enumerate(zip(before, after, strict=True)):
        if b or a:
            places = np.arange(shape_of(x)[axis])[max(-b, 0) : shape_of(x)[axis] + min(a, 0)]
            x = e.pick(x, np.pad(places, (max(b, 0), max(a, 0)), mode=mode), axis)
    return x


def _depth_to_space(c: Call) -> Value:
    (n, depth, height, width), b = c.shape(), c.attribute("blocksize")
    blocks = (b, b, depth // b**2) if c.attribute("mode") == "DCR" else (depth // b**2, b, b)
    order = (0, 3, 4, 1, 5, 2) if c.attribute("mode") == "DCR" else (0, 1, 4, 2, 5, 3)
    return c.e.reshape(c.e.transpose(c.e.reshape(c.value(0), (n, *blocks, height, width)), order), c.result)


def _space_to_depth(c: Call) -> Value:
    (n, depth, height, width), b = c.shape(), c.attribute("blocksize")
    x = c.e.reshape(c.value(0), (n, depth, height // b, b, width // b, b))
    order = (0, 3, 5, 1, 2, 4) if c.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return c.e.reshape(c.e.transpose(x, order), c.result)


def _slice(c: Call) -> Value:
    e, x, shape, starts, ends = c.e, c.value(0), c.shape(), c.ints(1), c.ints(2)
    axes = c.axes(3) if c.has(3) else list(range(len(starts)))
    steps = c.ints(4) if c.has(4) else [1] * len(starts)
    begin, end, by = [0] * len(shape), list(shape), [1] * len(shape)
    for axis, start, stop, step in zip(axes, starts, ends, steps, strict=True):
        places = range(shape[axis])[start:stop:step]
        if step < 0:  # the same elements from front to back, then turned round
            x = e.reverse(x, axis)
            places = range(shape[axis] - 1 - places.start, shape[axis] - 1 - places.stop, -step)
        begin[axis], by[axis] = places.start, abs(step)
        end[axis] = max(places.stop, places.start)
    return e.slice(x, begin, end, by)


def _indices(c: Call, lengths: Any) -> Value:
    """Input 1; negative indices count from the end."""
    e = c.e
    if not c.is_constant(1):
        indices = c.value(1)
        like = np.array(lengths, dtype_of(indices).value)
        return e.apply("FloorMod", indices, e.constant(like) if like.shape else e.scalar(indices, int(like)))
    array = c.array(1)
    if np.any(array < -np.array(lengths)) or np.any(array >= np.array(lengths)):
        raise FormatError(f"an index that is not one of an axis of length {lengths}")
    return e.constant(np.where(array < 0, array + lengths, array).astype(array.dtype))


def _gather(c: Call) -> Value:
    e, axis, given = c.e, c.axis(), c.shape(1)
    length = c.shape()[axis]
    if c.is_constant(1) and math.prod(given) == 1:
        at = range(length)[c.ints(1)[0]]
        return e.reshape(e.part(c.value(0), axis, at, at + 1), c.result)
    return e.reshape(e.pick(c.value(0), e.reshape(_indices(c, length), (math.prod(given),)), axis), c.result)


def _gather_elements(c: Call) -> Value:
    axis, shape, given = c.axis(), c.shape(), c.shape(1)
    ends = [d if i == axis else min(d, w) for i, (d, w) in enumerate(zip(shape, given, strict=True))]
    x = c.e.slice(c.value(0), [0] * len(ends), ends)
    return c.e.emit("GatherD", [x, axis, _indices(c, shape[axis])], given)


def _points(c: Call, lengths: tuple[int, ...]) -> Value:
    """Indices of several axes, of which the last axis holds the coordinates."""
    return c.e.cast(_indices(c, list(lengths[: c.shape(1)[-1]])), DType.INT64)


def _gather_nd(c: Call) -> Value:
    e, batch = c.e, c.attribute("batch_dims")
    indices = _points(c, c.shape()[batch:])
    if batch:
        # The batch's own coordinates in front, so that one list of points serves all.
        grids = list(np.indices(shape_of(indices)[:-1])[:batch])
        own = e.constant(np.stack(grids, axis=-1).astype(np.int64))
        indices = e.concat([own, indices], len(shape_of(indices)) - 1)
    return e.emit("GatherNd", [c.value(0), indices], c.result)


def _scatter_elements(c: Call) -> Value:
    reduction, axis = c.attribute("reduction"), c.axis()
    if reduction not in ("none", "add"):
        raise Unsupported(f"reduction '{reduction}'")
    operands = [c.value(0), _indices(c, c.shape()[axis]), c.value(2), axis, int(reduction == "add")]
    return c.e.emit("TensorScatterElements", operands, c.result, {"axis": axis, "reduction": reduction})


def _scatter_nd(c: Call) -> Value:
    reduction = c.attribute("reduction")
    name = {"none": "Update", "add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}[reduction]
    names = {"output_names": ["y"], "input_names": ["input_x", "indices", "updates"]}
    attributes, kind = ({}, 2) if reduction == "add" else (names, CLASS)
    operands = [c.value(0), _points(c, c.shape()), c.value(2)]
    return c.e.emit(f"TensorScatter{name}", operands, c.result, attributes, kind)


def _top_k(c: Call) -> list[Value]:
    e, axis, (k,), largest = c.e, c.axis(), c.ints(1), c.attribute("largest")
    x = e.axis_to_end(c.value(0), axis)
    shape = (*shape_of(x)[:-1], k)
    names = {"output_names": ["values", "indices"], "sorted": True, "input_names": ["input", "k"]}
    types = [TensorType(dtype_of(x), shape), TensorType(DType.INT32, shape)]
    values, indices = e.several("TopK", [x if largest else e.apply("Neg", x), k], types, names, CLASS)
    values = values if largest else e.apply("Neg", values)
    return [e.axis_from_end(values, axis), e.cast(e.axis_from_end(indices, axis), DType.INT64)]


def _arg(name: str, c: Call) -> Value:
    e, x, axis = c.e, c.value(0), c.axis()
    last = c.attribute("select_last_index")
    x = e.reverse(x, axis) if last else x
    shape = tuple(d for i, d in enumerate(shape_of(x)) if i != axis)
    found = e.cast(e.emit(name, [x, axis, 34], TensorType(DType.INT32, shape)), DType.INT64)
    found = e.apply("Sub", e.scalar(found, c.shape()[axis] - 1), found) if last else found
    return e.reshape(found, c.result)


def _one_hot(c: Call) -> Value:
    e, depth = c.e, c.ints(1)[0]
    off, on = (e.constant(np.array(v)) for v in c.array(2))
    indices = e.cast(c.value(0), DType.INT64)
    # What is out of range in either direction has no place, and all of its row is off.
    indices = e.select(e.compare("Less", indices, 0), e.add(indices, depth), indices)
    shape = (*shape_of(indices), depth)
    hot = e.emit("OneHot", [indices, depth, on, off, -1], TensorType(dtype_of(on), shape))
    return e.axis_from_end(hot, c.axis(rank=len(shape)))


def _trilu(c: Call) -> Value:
    x, k = c.value(0), c.ints(1)[0] if c.has(1) else 0
    kept = (np.triu if c.attribute("upper") else np.tril)(np.ones(shape_of(x)[-2:], bool), k)
    return c.e.select(c.e.constant(kept), x, c.e.scalar(x, 0.0))


def _resize(c: Call) -> Value:
    """Along each axis a fixed linear map: a gather, or a product with a constant matrix."""
    x = c.value(0)
    axes = [c.axis(a) for a in c.attribute("axes") or range(c.rank())]
    if c.attribute("antialias"):
        raise Unsupported("antialias")
    scales = [float(s) for s in c.array(2).reshape(-1)] if c.has(2) else []
    ratios = [n / shape_of(x)[a] for n, a in zip(c.ints(3), axes, strict=True)] if c.has(3) else []
    policy = c.attribute("keep_aspect_ratio_policy")
    if ratios and policy != "stretch":
        scales = [min(ratios) if policy == "not_larger" else max(ratios)] * len(axes)
    for i, axis in enumerate(axes):
        old, new = shape_of(x)[axis], c.result[axis]
        scale = scales[i] if scales else new / old
        if new != old or scale != 1:
            x = _mapped(c, x, axis, _matrix(c, old, new, scale))
    return x


def _mapped(c: Call, x: Value, axis: int, weights: np.ndarray) -> Value:
    """Each element of the new axis is a weighted sum of those of the old one: ``weights`` is [new, old]."""
    e = c.e
    if ((weights == 0) | (weights == 1)).all() and (weights.sum(axis=1) == 1).all():
        return e.pick(x, weights.argmax(axis=1), axis)
    x = e.axis_to_end(x, axis)
    *kept, last = shape_of(x)
    flat = e.reshape(x, (math.prod(kept), last))
    made = e.matmul(flat, e.constant(weights.astype(dtype_of(x).value)), transpose_b=True)
    return e.axis_from_end(e.reshape(made, (*kept, len(weights))), axis)


def _matrix(c: Call, old: int, new: int, scale: float) -> np.ndarray:
    at = _places(c.attribute("coordinate_transformation_mode"), np.arange(new), old, new, scale)
    mode, low = c.attribute("mode"), np.floor(at).astype(int)
    if mode == "nearest":
        rounded = {
            "floor": np.floor(at), "ceil": np.ceil(at), "round_prefer_ceil": np.floor(at + 0.5),
            "round_prefer_floor": np.ceil(at - 0.5),
        }[c.attribute("nearest_mode")]  # fmt: skip
        places, shares = rounded.astype(int)[:, None], np.ones((new, 1))
    elif mode == "linear":
        places, shares = low[:, None] + np.arange(2), np.stack([1 - (at - low), at - low], 1)
    else:
        places = low[:, None] + np.arange(-1, 3)
        shares = _cubic(np.abs(at[:, None] - places), c.attribute("cubic_coeff_a"))
        if c.attribute("exclude_outside"):
            shares = np.where((places >= 0) & (places < old), shares, 0)
            shares = shares / shares.sum(axis=1, keepdims=True)
    weights = np.zeros((new, old))
    np.add.at(weights, (np.arange(new)[:, None], np.clip(places, 0, old - 1)), shares)
    return weights


def _places(mode: str, i: np.ndarray, old: int, new: int, scale: float) -> np.ndarray:
    """Where the elements of the new axis lie on the old one; ``scale`` may be another than new / old."""
    length = old * scale
    middle = (i + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return old / 2 * (1 - new / length) + middle
    if mode == "pytorch_half_pixel":
        return middle if length > 1 else 0.0 * i
    if mode == "align_corners":
        return i * (old - 1) / (length - 1) if length != 1 else 0.0 * i
    if mode == "half_pixel":
        return middle
    if mode == "asymmetric":
        return i / scale
    raise Unsupported(f"coordinate_transformation_mode '{mode}'")


def _cubic(d: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel."""
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    return np.where(d <= 1, near, np.where(d < 2, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a, 0))


def _at_run_time(c: Call) -> Value:
    raise Unsupported("its shape is computed at run time")


RULES: dict[str, Rule] = {
    "Identity": lambda c: c.item(0),
    "Shape": _shape,
    "Size": lambda c: np.array(math.prod(c.shape()), np.int64),
    "Cast": _cast,
    "CastLike": lambda c: c.e.cast(c.value(0), c.type(1).dtype),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    "Transpose": lambda c: c.e.transpose(c.value(0), c.attribute("perm") or range(c.rank())[::-1]),
    "Concat": _concat,
    "Split": _split,
    "Expand": _expand,
    "Tile": _tile,
    "Pad": _pad,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Slice": _slice,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TopK": _top_k,
    "ArgMax": partial(_arg, "Argmax"),
    "ArgMin": partial(_arg, "Argmin"),
    "OneHot": _one_hot,
    "Trilu": _trilu,
    "Resize": _resize,
    **dict.fromkeys(("ConstantOfShape", "Range"), _at_run_time),
}
