"""Elements by their places: gathering, scattering, choosing, resizing."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ....core.errors import FormatError
from ....core.graph import Node, Value
from ....core.types import DType, TensorType
from ..call import Call
from ..operators import Entry, Unsupported, dtype_of, shape_of
from ..writing import Names, Writing, plain
from .elementwise import row

# -- gathering and scattering ------------------------------------------------------------------------------------------


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


def _read_gather(c: Call) -> Value:
    e, axis, given = c.e, c.axis(), c.shape(1)
    length = c.shape()[axis]
    if c.is_constant(1) and math.prod(given) == 1:
        at = range(length)[c.ints(1)[0]]
        return e.reshape(e.part(c.value(0), axis, at, at + 1), c.result)
    return e.reshape(e.pick(c.value(0), e.reshape(_indices(c, length), (math.prod(given),)), axis), c.result)


def _read_gather_elements(c: Call) -> Value:
    axis, shape, given = c.axis(), c.shape(), c.shape(1)
    ends = [d if i == axis else min(d, w) for i, (d, w) in enumerate(zip(shape, given, strict=True))]
    x = c.e.slice(c.value(0), [0] * len(ends), ends)
    return c.e.emit("GatherD", [x, axis, _indices(c, shape[axis])], given)


def _points(c: Call, lengths: tuple[int, ...]) -> Value:
    """Indices of several axes, of which the last axis holds the coordinates."""
    return c.e.cast(_indices(c, list(lengths[: c.shape(1)[-1]])), DType.INT64)


def _read_gather_nd(c: Call) -> Value:
    e, batch = c.e, c.attribute("batch_dims")
    indices = _points(c, c.shape()[batch:])
    if batch:
        # The batch's own coordinates in front, so that one list of points serves all.
        grids = list(np.indices(shape_of(indices)[:-1])[:batch])
        own = e.constant(np.stack(grids, axis=-1).astype(np.int64))
        indices = e.concat([own, indices], len(shape_of(indices)) - 1)
    return e.emit("GatherNd", [c.value(0), indices], c.result)


def _read_scatter_elements(c: Call) -> Value:
    reduction, axis = c.attribute("reduction"), c.axis()
    if reduction not in ("none", "add"):
        raise Unsupported(f"reduction '{reduction}'")
    operands = [c.value(0), _indices(c, c.shape()[axis]), c.value(2), axis, int(reduction == "add")]
    return c.e.emit("TensorScatterElements", operands, c.result, {"axis": axis, "reduction": reduction})


def _write_scatter_elements(w: Writing, node: Node) -> Names:
    reduction = {0: "none", 1: "add"}.get(plain(node, 4, 0))
    if reduction is None:
        raise Unsupported("another reduction than the sum")
    return w.add("ScatterElements", w.inputs(node, 3), axis=int(plain(node, 3)), reduction=reduction)


def _read_scatter_nd(c: Call) -> Value:
    name = {"none": "Update", "add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}[c.attribute("reduction")]
    return c.e.emit(f"TensorScatter{name}", [c.value(0), _points(c, c.shape()), c.value(2)], c.result)


# -- choosing ----------------------------------------------------------------------------------------------------------


def _read_top_k(c: Call) -> list[Value]:
    e, axis, (k,), largest = c.e, c.axis(), c.ints(1), c.attribute("largest")
    x = e.move_axis(c.value(0), axis, -1)
    shape = (*shape_of(x)[:-1], k)
    types = [TensorType(dtype_of(x), shape), TensorType(DType.INT32, shape)]
    values, indices = e.several("TopK", [x if largest else e.apply("Neg", x), k], types)
    values = values if largest else e.apply("Neg", values)
    return [e.move_axis(values, -1, axis), e.cast(e.move_axis(indices, -1, axis), DType.INT64)]


def _write_top_k(w: Writing, node: Node) -> Names:
    k = plain(node, 1)
    k = k[0] if isinstance(k, (list, tuple)) else k
    values, places = w.add_several("TopK", [w.name(node.operand(0)), w.ints([int(k)])], 2, axis=-1)
    return (values, w.add("Cast", [places], to=6))


def _read_one_hot(c: Call) -> Value:
    e, depth = c.e, c.ints(1)[0]
    off, on = (e.constant(np.array(v)) for v in c.array(2))
    indices = e.cast(c.value(0), DType.INT64)
    # What is out of range in either direction has no place, and all of its row is off.
    indices = e.select(e.apply("Less", indices, 0), e.add(indices, depth), indices)
    shape = (*shape_of(indices), depth)
    hot = e.emit("OneHot", [indices, depth, on, off, -1], TensorType(dtype_of(on), shape))
    return e.move_axis(hot, -1, c.axis(rank=len(shape)))


def _write_one_hot(w: Writing, node: Node) -> Names:
    """(indices, depth, on, off, axis)"""
    on, off = (w.add("Reshape", [w.name(node.operand(i)), w.ints([1])]) for i in (2, 3))
    depth, values = w.ints([int(plain(node, 1))]), w.add("Concat", [off, on], axis=0)
    return w.add("OneHot", [w.name(node.operand(0)), depth, values], axis=int(plain(node, 4, -1)))


def _read_trilu(c: Call) -> Value:
    x, k = c.value(0), (c.ints(1) or [0])[0]
    kept = (np.triu if c.attribute("upper") else np.tril)(np.ones(shape_of(x)[-2:], bool), k)
    return c.e.select(c.e.constant(kept), x, c.e.scalar(x, 0.0))


def _write_triangle(upper: int, w: Writing, node: Node) -> Names:
    k = node.attributes["diagonal"] if "diagonal" in node.attributes else plain(node, 1, 0)
    return w.add("Trilu", [w.name(node.operand(0)), w.ints([int(k)])], upper=upper)


# -- resizing ----------------------------------------------------------------------------------------------------------


def _read_resize(c: Call) -> Value:
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
    x = e.move_axis(x, axis, -1)
    *kept, last = shape_of(x)
    flat = e.reshape(x, (math.prod(kept), last))
    made = e.matmul(flat, e.constant(weights.astype(dtype_of(x).value)), transpose_b=True)
    return e.move_axis(e.reshape(made, (*kept, len(weights))), -1, axis)


def _matrix(c: Call, old: int, new: int, scale: float) -> np.ndarray:
    at = _coordinates(c.attribute("coordinate_transformation_mode"), np.arange(new), old, new, scale)
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


def _coordinates(mode: str, i: np.ndarray, old: int, new: int, scale: float) -> np.ndarray:
    """Where the elements of the new axis lie on the old one; ``scale`` may be another than new / old."""
    length, middle = old * scale, (i + 0.5) / scale - 0.5
    ways = {
        "half_pixel": middle,
        "half_pixel_symmetric": old / 2 * (1 - new / length) + middle,
        "pytorch_half_pixel": middle if length > 1 else 0.0 * i,
        "align_corners": i * (old - 1) / (length - 1) if length != 1 else 0.0 * i,
        "asymmetric": i / scale,
    }
    if mode not in ways:
        raise Unsupported(f"coordinate_transformation_mode '{mode}'")
    return ways[mode]


def _cubic(d: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel."""
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    return np.where(d <= 1, near, np.where(d < 2, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a, 0))


def _write_resize(mode: str, w: Writing, node: Node) -> Names:
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


TABLE = (
    Entry("Gather", "Gather", _read_gather, row("Gather", "", (0, 1, "axis", "=0")).write),
    Entry("", "EmbeddingLookup", None, row("Gather", "", (0, 1, "=0")).write),
    Entry("GatherElements", "GatherD", _read_gather_elements, row("GatherElements", "", (0, "axis", 1)).write),
    Entry("GatherND", "GatherNd", _read_gather_nd, row("GatherND", "", (0, "@1")).write),
    Entry("ScatterElements", "TensorScatterElements", _read_scatter_elements, _write_scatter_elements),
    Entry("ScatterND", "TensorScatterUpdate", _read_scatter_nd, row("ScatterND", "", (0, "@1", 2)).write),
    row("ScatterND", "TensorScatterAdd", (0, "@1", 2), reduction="add"),
    Entry("TopK", "TopK", _read_top_k, _write_top_k),
    Entry("OneHot", "OneHot", _read_one_hot, _write_one_hot),
    Entry("Trilu", "Triu", _read_trilu, partial(_write_triangle, 1)),
    Entry("", "Tril", None, partial(_write_triangle, 0)),
    Entry("Resize", "ResizeBilinearV2", _read_resize, partial(_write_resize, "linear")),
    *(Entry("", f"ResizeNearestNeighbor{v}", None, partial(_write_resize, "nearest")) for v in ("", "V2")),
)
