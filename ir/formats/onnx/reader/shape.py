"""Operators that only move elements (reshaping, transposing, joining, splitting, padding), and those on shapes
alone."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np

from ....core.errors import FormatError
from ....core.graph import Value
from ....core.inference import broadcast
from ....core.types import TensorType, TupleType
from ....core.wording import counted
from ..vocabulary import Unsupported, dtype_of, shape_of
from .call import Call, Rule
from .emitter import CLASS, Emitter
from .tensors import ELEMENT_TYPES


def _shape(c: Call) -> np.ndarray:
    start, end = c.attribute("start", 0), c.attribute("end")
    return np.array(c.shape(0)[start:end], np.int64)


def _size(c: Call) -> np.ndarray:
    return np.array(math.prod(c.shape(0)), np.int64)


def _cast(c: Call) -> Value:
    to = c.attribute("to")
    if to not in ELEMENT_TYPES:
        raise Unsupported(f"it casts to ONNX element type {to}, which MindSpore lacks")
    return c.emitter.cast(c.value(0), ELEMENT_TYPES[to])


def _reshape(c: Call) -> Value:
    old, asked = c.shape(0), c.ints(1)
    shape = list(asked)
    if not c.attribute("allowzero", 0):
        shape = [old[i] if d == 0 and i < len(old) else d for i, d in enumerate(asked)]
    if shape.count(-1) > 1:
        raise FormatError(f"Reshape to {asked}: more than one size is open")
    if -1 in shape:
        known = math.prod(d for d in shape if d != -1)
        shape[shape.index(-1)] = math.prod(old) // known if known else 0
    return c.emitter.reshape(c.value(0), shape)


def _flatten(c: Call) -> Value:
    shape = c.shape(0)
    axis = c.attribute("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return c.emitter.reshape(c.value(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))


def _transpose(c: Call) -> Value:
    order = c.attribute("perm") or list(range(c.rank()))[::-1]
    if sorted(order) != list(range(c.rank())):
        raise FormatError(f"Transpose of {c.rank()} axes in the order {list(order)}")
    return c.emitter.transpose(c.value(0), order)


def _squeeze(c: Call) -> Value:
    shape = c.shape(0)
    axes = c.axes(1)
    gone = {i for i, d in enumerate(shape) if d == 1} if axes is None else set(axes)
    if any(shape[i] != 1 for i in gone):
        raise FormatError(f"Squeeze of axes {sorted(gone)} of {list(shape)}")
    return c.emitter.reshape(c.value(0), [d for i, d in enumerate(shape) if i not in gone])


def _unsqueeze(c: Call) -> Value:
    given = c.ints(1) if c.has(1) else c.attribute("axes", [])
    rank = c.rank() + len(given)
    axes = {c.axis(a, rank) for a in given}
    rest = iter(c.shape(0))
    return c.emitter.reshape(c.value(0), [1 if i in axes else next(rest) for i in range(rank)])


def _concat(c: Call) -> Value:
    # What is empty adds nothing, and MindSpore takes no empty operands.
    values = [c.value(i) for i in range(len(c.inputs)) if math.prod(c.shape(i))] or [c.value(0)]
    return c.emitter.concat(values, c.axis(c.attribute("axis", 0)))


def _split(c: Call) -> list[Value]:
    e, x = c.emitter, c.value(0)
    axis = c.axis(c.attribute("axis", 0))
    whole, count = shape_of(x)[axis], len(c.wanted)
    sizes = c.ints(1) if c.has(1) else c.attribute("split")
    if sizes is None:
        each = -(-whole // count)
        sizes = [min(each, whole - i * each) for i in range(count)]
    if sum(sizes) != whole or len(sizes) != count or min(sizes) < 0:
        raise FormatError(f"Split of {whole} into {list(sizes)}, for {counted(count, 'output')}")
    if len(set(sizes)) == 1 and sizes[0] and count > 1:
        shape = tuple(sizes[0] if i == axis else d for i, d in enumerate(shape_of(x)))
        parts = TupleType((TensorType(dtype_of(x), shape),) * count, dynamic=False)
        return e.items(e.emit("Split", [x, axis, count], parts))
    ends = list(accumulate(sizes))
    return [e.part(x, axis, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _expand(c: Call) -> Value:
    return c.emitter.expand(c.value(0), broadcast(c.shape(0), tuple(c.ints(1))))


def _tile(c: Call) -> Value:
    repeats, x = tuple(c.ints(1)), c.value(0)
    if len(repeats) != c.rank():
        raise FormatError(f"Tile of {c.rank()} axes by {list(repeats)}")
    if all(r == 1 for r in repeats):
        return x
    return c.emitter.emit("Tile", [x, repeats], [d * r for d, r in zip(c.shape(0), repeats, strict=True)])


def _pad(c: Call) -> Value:
    e, x, rank = c.emitter, c.value(0), c.rank()
    given = c.ints(1) if c.has(1) else c.attribute("pads")
    axes = [c.axis(a) for a in c.ints(3)] if c.has(3) else list(range(rank))
    if given is None or len(given) != 2 * len(axes):
        raise FormatError(f"Pad: {given} for {counted(len(axes), 'axis')}")
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = given[i], given[i + len(axes)]
    mode = c.attribute("mode", "constant")
    if mode != "constant":
        return _pad_by_index(e, x, before, after, mode)
    value = c.array(2).reshape(-1) if c.has(2) else np.zeros(0)
    return pad(e, x, before, after, float(value[0]) if value.size else float(c.attribute("value", 0.0)))


def pad(e: Emitter, x: Value, before: list[int], after: list[int], value: float = 0.0) -> Value:
    """Constant padding of every axis; negative numbers cut."""
    shape = shape_of(x)
    ends = [d + min(a, 0) for d, a in zip(shape, after, strict=True)]
    x = e.slice(x, [max(-b, 0) for b in before], ends)
    pairs = tuple((max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True))
    if not any(map(any, pairs)):
        return x
    inside = tuple(slice(b, b + d) for d, (b, _) in zip(shape_of(x), pairs, strict=True))
    padded = [d + b + a for d, (b, a) in zip(shape_of(x), pairs, strict=True)]
    made = e.emit("Pad", [x], padded, {"output_names": ["y"], "paddings": pairs, "input_names": ["x"]}, CLASS)
    if value == 0:
        return made
    # MindSpore's PadV3 takes a value, but its gradient is wrong from the second run on a CPU on (2.10).
    frame = np.full([d if any(pair) else 1 for d, pair in zip(padded, pairs, strict=True)], value)
    frame[tuple(at if any(pair) else slice(None) for at, pair in zip(inside, pairs, strict=True))] = 0
    return e.add(made, e.constant(frame.astype(dtype_of(x).value)))


def _pad_by_index(e: Emitter, x: Value, before: list[int], after: list[int], mode: str) -> Value:
    if mode not in ("reflect", "edge", "wrap"):
        raise Unsupported(f"padding mode '{mode}'")
    for axis, (b, a) in enumerate(zip(before, after, strict=True)):
        if b or a:
            places = np.arange(shape_of(x)[axis])[max(-b, 0) : shape_of(x)[axis] + min(a, 0)]
            x = e.pick(x, np.pad(places, (max(b, 0), max(a, 0)), mode=mode), axis)  # type: ignore[call-overload]
    return x


def _depth_to_space(c: Call) -> Value:
    e, (n, depth, height, width), b = c.emitter, c.shape(0), c.attribute("blocksize")
    if c.attribute("mode", "DCR") == "DCR":
        x = e.reshape(c.value(0), (n, b, b, depth // b**2, height, width))
        x = e.transpose(x, (0, 3, 4, 1, 5, 2))
    else:
        x = e.reshape(c.value(0), (n, depth // b**2, b, b, height, width))
        x = e.transpose(x, (0, 1, 4, 2, 5, 3))
    return e.reshape(x, (n, depth // b**2, height * b, width * b))


def _space_to_depth(c: Call) -> Value:
    e, (n, depth, height, width), b = c.emitter, c.shape(0), c.attribute("blocksize")
    x = e.reshape(c.value(0), (n, depth, height // b, b, width // b, b))
    x = e.transpose(x, (0, 3, 5, 1, 2, 4) if c.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4))
    return e.reshape(x, (n, depth * b * b, height // b, width // b))


def _constant_of_shape(c: Call) -> np.ndarray:
    raise Unsupported("its shape is computed at run time")


RULES: dict[str, Rule] = {
    "Identity": lambda c: c.item(0),
    "Shape": _shape,
    "Size": _size,
    "Cast": _cast,
    "CastLike": lambda c: c.emitter.cast(c.value(0), c.type(1).dtype),
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Concat": _concat,
    "Split": _split,
    "Expand": _expand,
    "Tile": _tile,
    "Pad": _pad,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "ConstantOfShape": _constant_of_shape,
    "Range": _constant_of_shape,
}
