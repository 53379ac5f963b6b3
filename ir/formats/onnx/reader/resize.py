"""Resize and Upsample: along each axis a fixed linear map, so a gather or a product with a constant matrix."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ....core.errors import FormatError
from ....core.graph import Value
from ....core.wording import counted
from ..vocabulary import Unsupported, dtype_of, shape_of
from .call import Call, Rule


def _resize(c: Call) -> Value:
    x = c.value(0)
    axes = [c.axis(a) for a in c.attribute("axes")] if c.attribute("axes") else list(range(c.rank()))
    scales = [float(s) for s in c.array(2).reshape(-1)] if c.has(2) else []
    sizes = c.ints(3) if c.has(3) else []
    if len(scales or sizes) != len(axes):
        raise FormatError(f"Resize of {counted(len(axes), 'axis')} by scales {scales} or to sizes {sizes}")
    if c.attribute("antialias", 0):
        raise Unsupported("antialias")
    policy = c.attribute("keep_aspect_ratio_policy", "stretch")
    if sizes and policy != "stretch":
        ratios = [n / shape_of(x)[a] for n, a in zip(sizes, axes, strict=True)]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        sizes = [int(np.floor(shape_of(x)[a] * ratio + 0.5)) for a in axes]
        scales = [ratio] * len(axes)
    roi = c.array(1).reshape(-1) if c.has(1) else np.zeros(0)
    for i, axis in enumerate(axes):
        old = shape_of(x)[axis]
        new = sizes[i] if sizes else math.floor(old * scales[i])
        scale = scales[i] if scales else new / old
        part = (float(roi[i]), float(roi[i + len(axes)])) if roi.size == 2 * len(axes) else (0.0, 1.0)
        if new != old or scale != 1 or part != (0.0, 1.0):
            x = _along(c, x, axis, _matrix(c, old, new, scale, part))
    return x


def _upsample(c: Call) -> Value:
    e, x = c.emitter, c.value(0)
    if c.attribute("mode", "nearest") != "nearest":
        raise Unsupported("Upsample other than nearest: export with Resize")
    for axis, scale in enumerate(c.array(1).reshape(-1)):
        old = shape_of(x)[axis]
        if scale != 1:
            x = e.pick(x, np.minimum((np.arange(int(old * scale)) / scale).astype(int), old - 1), axis)
    return x


def _along(c: Call, x: Value, axis: int, weights: np.ndarray) -> Value:
    """Each element of the new axis is a weighted sum of those of the old one: ``weights`` is [new, old]."""
    e, shape = c.emitter, shape_of(x)
    if ((weights == 0) | (weights == 1)).all() and (weights.sum(axis=1) == 1).all():
        return e.pick(x, weights.argmax(axis=1), axis)
    x = e.axis_to_end(x, axis)
    kept = shape_of(x)[:-1]
    flat = e.reshape(x, (math.prod(kept), shape[axis]))
    made = e.matmul(flat, e.constant(weights.astype(dtype_of(x).value)), transpose_b=True)
    x = e.reshape(made, (*kept, weights.shape[0]))
    if c.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
        # Rows without weight lie outside of the picture.
        outside = ~weights.any(axis=1)
        x = e.add(x, e.constant((outside * c.attribute("extrapolation_value", 0.0)).astype(dtype_of(x).value)))
    return e.axis_from_end(x, axis)


def _matrix(c: Call, old: int, new: int, scale: float, roi: tuple[float, float]) -> np.ndarray:
    mode = c.attribute("mode", "nearest")
    transformation = c.attribute("coordinate_transformation_mode", "half_pixel")
    weights = np.zeros((new, old))
    for i in range(new):
        at = _coordinate(transformation, i, old, new, scale, roi)
        if transformation == "tf_crop_and_resize" and not 0 <= at <= old - 1:
            continue
        if mode == "nearest":
            nearest = _NEAREST[c.attribute("nearest_mode", "round_prefer_floor")](at)
            weights[i, min(max(nearest, 0), old - 1)] = 1
        elif mode == "linear":
            low = math.floor(at)
            _add(weights[i], [low, low + 1], [1 - (at - low), at - low], False)
        elif mode == "cubic":
            low = math.floor(at)
            places = [low - 1, low, low + 1, low + 2]
            shares = [_cubic(at - p, c.attribute("cubic_coeff_a", -0.75)) for p in places]
            _add(weights[i], places, shares, bool(c.attribute("exclude_outside", 0)))
        else:
            raise Unsupported(f"mode '{mode}'")
    return weights


def _coordinate(mode: str, i: int, old: int, new: int, scale: float, roi: tuple[float, float]) -> float:
    """Where element ``i`` of the new axis lies on the old one; ``scale`` may be another than new / old."""
    length = old * scale
    if mode == "half_pixel":
        return (i + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (i + 0.5) / scale - 0.5 if length > 1 else 0.0
    if mode == "align_corners":
        return i * (old - 1) / (length - 1) if length != 1 else 0.0
    if mode == "asymmetric":
        return i / scale
    if mode == "half_pixel_symmetric":
        adjusted = old / 2 * (1 - new / length)
        return adjusted + (i + 0.5) / scale - 0.5
    if mode == "tf_crop_and_resize":
        start, end = roi
        if new > 1:
            return start * (old - 1) + i * (end - start) * (old - 1) / (length - 1)
        return 0.5 * (start + end) * (old - 1)
    raise Unsupported(f"coordinate_transformation_mode '{mode}'")


_NEAREST: dict[str, Callable[[float], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_ceil": lambda at: math.floor(at + 0.5),
    "round_prefer_floor": lambda at: math.ceil(at - 0.5),
}


def _cubic(distance: float, a: float) -> float:
    """Keys' kernel."""
    d = abs(distance)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def _add(row: np.ndarray, places: list[int], shares: list[float], inside_only: bool) -> None:
    """Elements outside count as the border, or not at all."""
    if inside_only:
        shares = [s if 0 <= p < len(row) else 0.0 for p, s in zip(places, shares, strict=True)]
        shares = [s / sum(shares) for s in shares]
    for place, share in zip(places, shares, strict=True):
        row[min(max(place, 0), len(row) - 1)] += share


RULES: dict[str, Rule] = {"Resize": _resize, "Upsample": _upsample}
