"""Slices, gathers, scatters, orders, one-hot codes."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ....core.errors import FormatError
from ....core.graph import Value
from ....core.types import DType, TensorType, TupleType
from ..vocabulary import Unsupported, dtype_of, shape_of
from .activation import one_hot
from .call import Call, Rule
from .emitter import CLASS


def _slice(c: Call) -> Value:
    shape = c.shape(0)
    starts = c.ints(1) if c.has(1) else c.attribute("starts", [])
    ends = c.ints(2) if c.has(2) else c.attribute("ends", [])
    axes = (c.axes(3) if c.has(3) else c.axes(len(c.inputs))) or list(range(len(starts)))
    steps = c.ints(4) if c.has(4) else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise FormatError(f"Slice from {starts} to {ends} in steps of {steps} along {axes}")
    e, x = c.emitter, c.value(0)
    begin, end, by = [0] * len(shape), list(shape), [1] * len(shape)
    for axis, start, stop, step in zip(axes, starts, ends, steps, strict=True):
        places = range(shape[axis])[start:stop:step]
        if step < 0:  # the same elements from front to back, then turned round
            x = e.emit("ReverseV2", [x, (axis,)], shape_of(x))
            places = range(shape[axis] - 1 - places.start, shape[axis] - 1 - places.stop, -step)
        begin[axis], by[axis] = places.start, abs(step)
        end[axis] = max(places.stop, places.start)
    return e.slice(x, begin, end, by)


def _indices(c: Call, length: int) -> Value:
    """Input 1; negative indices count from the end."""
    if c.is_constant(1):
        return c.emitter.constant(_wrapped(c.array(1), length))
    indices = c.value(1)
    return c.emitter.binary("FloorMod", indices, c.emitter.scalar(indices, length))


def _wrapped(indices: np.ndarray, length: int) -> np.ndarray:
    if indices.size and not (-length <= indices.min() and indices.max() < length):
        raise FormatError(f"index {indices.max()} of an axis of length {length}")
    return np.where(indices < 0, indices + length, indices).astype(indices.dtype)


def _gather(c: Call) -> Value:
    e, shape = c.emitter, c.shape(0)
    axis = c.axis(c.attribute("axis", 0))
    given = c.shape(1)
    result = (*shape[:axis], *given, *shape[axis + 1 :])
    if c.is_constant(1) and math.prod(given) == 1:
        at = int(_wrapped(c.array(1).reshape(1), shape[axis])[0])
        return e.reshape(e.part(c.value(0), axis, at, at + 1), result)
    flat = e.reshape(_indices(c, shape[axis]), (math.prod(given),))
    return e.reshape(e.gather(c.value(0), flat, axis), result)


def _gather_elements(c: Call) -> Value:
    shape = c.shape(0)
    axis = c.axis(c.attribute("axis", 0))
    indices = _indices(c, shape[axis])
    x = c.value(0)
    if any(i != axis and d != w for i, (d, w) in enumerate(zip(shape_of(indices), shape, strict=True))):
        ends = [d if i == axis else min(d, w) for i, (d, w) in enumerate(zip(shape, shape_of(indices), strict=True))]
        x = c.emitter.slice(x, [0] * len(ends), ends)
    return c.emitter.emit("GatherD", [x, axis, indices], shape_of(indices))


def _points(c: Call, lengths: tuple[int, ...]) -> Value:
    """Indices of several axes, of which the last axis holds the coordinates."""
    e = c.emitter
    depth = c.shape(1)[-1]
    sizes = np.array(lengths[:depth], np.int64)
    if c.is_constant(1):
        indices = c.array(1)
        return e.constant(np.where(indices < 0, indices + sizes, indices).astype(np.int64))
    return e.binary("FloorMod", e.cast(c.value(1), DType.INT64), e.constant(sizes))


def _gather_nd(c: Call) -> Value:
    e, shape, batch = c.emitter, c.shape(0), c.attribute("batch_dims", 0)
    indices = _points(c, shape[batch:])
    depth = shape_of(indices)[-1]
    result = (*shape_of(indices)[:-1], *shape[batch + depth :])
    x = c.value(0)
    if batch:
        # The batch's own coordinates in front, so that one list of points serves all.
        grids = list(np.indices(shape_of(indices)[:-1])[:batch])
        own = e.constant(np.stack(grids, axis=-1).astype(np.int64))
        indices = e.concat([own, indices], len(shape_of(indices)) - 1)
    return e.emit("GatherNd", [x, indices], result)


_REDUCTIONS = {"none": 0, "add": 1}
_SCATTERS = {"none": "TensorScatterUpdate", "mul": "TensorScatterMul", "max": "TensorScatterMax",
             "min": "TensorScatterMin"}  # fmt: skip


def _scatter_elements(c: Call) -> Value:
    reduction = c.attribute("reduction", "none")
    if reduction not in _REDUCTIONS:
        raise Unsupported(f"reduction '{reduction}'")
    axis = c.axis(c.attribute("axis", 0))
    indices = _indices(c, c.shape(0)[axis])
    operands = [c.value(0), indices, c.value(2), axis, _REDUCTIONS[reduction]]
    return c.emitter.emit("TensorScatterElements", operands, c.shape(0), {"axis": axis, "reduction": reduction})


def _scatter_nd(c: Call) -> Value:
    reduction = c.attribute("reduction", "none")
    operands = [c.value(0), _points(c, c.shape(0)), c.value(2)]
    names = {"output_names": ["y"], "input_names": ["input_x", "indices", "updates"]}
    if reduction == "add":
        return c.emitter.emit("TensorScatterAdd", operands, c.shape(0))
    if reduction not in _SCATTERS:
        raise Unsupported(f"reduction '{reduction}'")
    return c.emitter.emit(_SCATTERS[reduction], operands, c.shape(0), names, CLASS)


def _top_k(c: Call) -> list[Value]:
    e, x = c.emitter, c.value(0)
    axis = c.axis(c.attribute("axis", -1))
    (k,) = c.ints(1)
    largest = c.attribute("largest", 1)
    x = e.axis_to_end(x, axis)
    x = x if largest else e.unary("Neg", x)
    shape = (*shape_of(x)[:-1], k)
    pair = TupleType((TensorType(dtype_of(x), shape), TensorType(DType.INT32, shape)), dynamic=False)
    names = {"output_names": ["values", "indices"], "sorted": True, "input_names": ["input", "k"]}
    values, indices = e.items(e.emit("TopK", [x, k], pair, names, CLASS))
    values = values if largest else e.unary("Neg", values)
    return [e.axis_from_end(values, axis), e.cast(e.axis_from_end(indices, axis), DType.INT64)]


def _arg(name: str, c: Call) -> Value:
    e, x = c.emitter, c.value(0)
    axis = c.axis(c.attribute("axis", 0))
    length = shape_of(x)[axis]
    last = c.attribute("select_last_index", 0)
    if last:
        x = e.emit("ReverseV2", [x, (axis,)], shape_of(x))
    shape = [d for i, d in enumerate(shape_of(x)) if i != axis]
    found: Value = e.emit(name, [x, axis, 34], TensorType(DType.INT32, tuple(shape)))
    found = e.cast(found, DType.INT64)
    if last:
        found = e.sub(e.scalar(found, length - 1), found)
    return e.add_axis(found, axis) if c.attribute("keepdims", 1) else found


def _one_hot(c: Call) -> Value:
    e = c.emitter
    depth = int(c.array(1).reshape(-1)[0])
    off, on = c.array(2)
    indices = e.cast(c.value(0), DType.INT64)
    # What is out of range in either direction has no place, and all of its row is off.
    negative = e.compare("Less", indices, e.scalar(indices, 0))
    indices = e.select(negative, e.add(indices, e.scalar(indices, depth)), indices)
    hot = one_hot(e, indices, depth, e.constant(np.array(on)), e.constant(np.array(off)))
    return e.axis_from_end(hot, c.axis(c.attribute("axis", -1), len(shape_of(hot))))


def _cum_sum(c: Call) -> Value:
    axis = c.axis(c.ints(1)[0])
    exclusive, reverse = bool(c.attribute("exclusive", 0)), bool(c.attribute("reverse", 0))
    return c.emitter.emit("CumSum", [c.value(0), axis, exclusive, reverse], c.shape(0))


def _trilu(c: Call) -> Value:
    e, x = c.emitter, c.value(0)
    k = c.ints(1)[0] if c.has(1) else 0
    rows, columns = shape_of(x)[-2:]
    ones = np.ones((rows, columns), bool)
    kept = np.triu(ones, k) if c.attribute("upper", 1) else np.tril(ones, k)
    return e.select(e.constant(kept), x, e.scalar(x, 0.0))


def _compress(c: Call) -> Value:
    kept = np.flatnonzero(c.array(1))
    axis = c.attribute("axis")
    x = c.value(0)
    if axis is None:
        return c.emitter.pick(c.emitter.reshape(x, (math.prod(shape_of(x)),)), kept, 0)
    return c.emitter.pick(x, kept, c.axis(axis))


def _reverse_sequence(c: Call) -> Value:
    """The first elements along the time axis, as many as each batch has, turned round."""
    e, x = c.emitter, c.value(0)
    time, batch = c.attribute("time_axis", 0), c.attribute("batch_axis", 1)
    lengths = c.ints(1)
    order = [batch, time, *(i for i in range(c.rank()) if i not in (batch, time))]
    x = e.transpose(x, order)
    steps = shape_of(x)[1]
    places = [[*[*range(n)][::-1], *range(n, steps)] for n in lengths]
    rows = [e.pick(e.part(x, 0, i, i + 1), p, 1) for i, p in enumerate(places)]
    return e.transpose(e.concat(rows, 0), [order.index(i) for i in range(c.rank())])


RULES: dict[str, Rule] = {
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
    "CumSum": _cum_sum,
    "Trilu": _trilu,
    "Compress": _compress,
    "ReverseSequence": _reverse_sequence,
}
