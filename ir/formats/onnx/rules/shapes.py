"""Operators that only move elements: reshaping, joining, slicing, repeating, padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from ....core.errors import FormatError
from ....core.graph import Node, Value
from ....core.types import TupleType
from ....core.wording import counted
from ..call import Call
from ..operators import Entry, Unsupported, dtype_of, shape_of
from ..writing import Names, Writing, plain

Ints = Sequence[int]
_FAR = 2**31 - 1

# -- shapes ------------------------------------------------------------------------------------------------------------


def _write_reshape(w: Writing, node: Node) -> Names:
    """To the result's shape; an open size is the rest."""
    shape = [d if d >= 0 else -1 for d in shape_of(node)]
    if shape.count(-1) > 1:
        raise Unsupported("several sizes are open")
    return w.add("Reshape", [w.name(node.operand(0)), w.ints(shape)])


def _write_expand(w: Writing, node: Node) -> Names:
    """An open size is that of the operand, which Expand keeps where it is told 1."""
    shape, own = shape_of(node), shape_of(node.operand(0))
    aligned = (*(1 for _ in range(len(shape) - len(own))), *own)
    if any(d < 0 <= o for d, o in zip(shape, aligned, strict=True)):
        raise Unsupported("an open size that its operand does not have")
    return w.add("Expand", [w.name(node.operand(0)), w.ints([max(d, 1) for d in shape])])


def _write_tile(w: Writing, node: Node) -> Names:
    """As many axes as there are repeats: those that the operand lacks come in front."""
    x, repeats = w.name(node.operand(0)), list(plain(node, 1))
    missing = len(repeats) - len(shape_of(node.operand(0)))
    return w.add("Tile", [w.add("Unsqueeze", [x, w.ints(range(missing))]) if missing > 0 else x, w.ints(repeats)])


def _read_depth_to_space(c: Call) -> Value:
    (n, depth, height, width), b = c.shape(), c.attribute("blocksize")
    blocks = (b, b, depth // b**2) if c.attribute("mode") == "DCR" else (depth // b**2, b, b)
    order = (0, 3, 4, 1, 5, 2) if c.attribute("mode") == "DCR" else (0, 1, 4, 2, 5, 3)
    return c.e.reshape(c.e.transpose(c.e.reshape(c.value(0), (n, *blocks, height, width)), order), c.result)


def _read_space_to_depth(c: Call) -> Value:
    (n, depth, height, width), b = c.shape(), c.attribute("blocksize")
    x = c.e.reshape(c.value(0), (n, depth, height // b, b, width // b, b))
    order = (0, 3, 5, 1, 2, 4) if c.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return c.e.reshape(c.e.transpose(x, order), c.result)


# -- several tensors ---------------------------------------------------------------------------------------------------


def _read_concat(c: Call) -> Value:
    # What is empty adds nothing, and MindSpore takes no empty operands.
    values = [c.value(i) for i in range(len(c.inputs)) if math.prod(c.shape(i))] or [c.value(0)]
    return c.e.concat(values, c.axis())


def _write_stack(w: Writing, node: Node) -> Names:
    axis = int(node.attributes["axis"] if "axis" in node.attributes else plain(node, 1, 0))
    at = w.ints([axis])
    return w.add("Concat", [w.add("Unsqueeze", [name, at]) for name in w.elements(node.operand(0))], axis=axis)


def _read_split(c: Call) -> list[Value]:
    e, x, axis = c.known(1).e, c.value(0), c.axis()
    sizes = [type_.shape[axis] for type_ in c.types if type_ is not None]
    if sum(sizes) != shape_of(x)[axis] or len(sizes) != len(c.types):
        raise FormatError(f"Split of {shape_of(x)[axis]} into {sizes}, for {counted(len(c.types), 'output')}")
    if len(set(sizes)) == 1 and sizes[0] and len(sizes) > 1:
        return e.several("Split", [x, axis, len(sizes)], [t for t in c.types if t is not None])
    return [e.part(x, axis, end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]


def _write_split(w: Writing, node: Node) -> Names:
    assert isinstance(node.type, TupleType)
    axis, count = int(plain(node, 1, 0)), len(node.type.elements)
    length = shape_of(node.operand(0))[axis]
    if length < 0:
        raise Unsupported("it splits along an open size")
    return w.add_several("Split", [w.name(node.operand(0)), w.ints([length // count] * count)], count, axis=axis)


def _write_unstack(w: Writing, node: Node) -> Names:
    axis, count = int(node.attributes["axis"]), int(node.attributes["num"])
    parts = w.add_several("Split", [w.name(node.operand(0)), w.ints([1] * count)], count, axis=axis)
    return tuple(w.add("Squeeze", [part, w.ints([axis])]) for part in parts)


def _write_item(w: Writing, node: Node) -> Names:
    names = w.names(node.operand(0))
    found: str | None = names[plain(node, 1)] if isinstance(names, tuple) else None
    if found is None:
        raise Unsupported("it takes a result that the operator has no counterpart for")
    return found


# -- slices and padding ------------------------------------------------------------------------------------------------


def _read_slice(c: Call) -> Value:
    e, x, shape, starts, ends = c.e, c.value(0), c.shape(), c.ints(1), c.ints(2)
    axes = [c.axis(a) for a in c.ints(3)] or list(range(len(starts)))
    steps = c.ints(4) or [1] * len(starts)
    begin, end, by = [0] * len(shape), list(shape), [1] * len(shape)
    for axis, start, stop, step in zip(axes, starts, ends, steps, strict=True):
        places = range(shape[axis])[start:stop:step]
        if step < 0:  # the same elements from front to back, then turned round
            x = e.reverse(x, axis)
            places = range(shape[axis] - 1 - places.start, shape[axis] - 1 - places.stop, -step)
        begin[axis], by[axis], end[axis] = places.start, abs(step), max(places.stop, places.start)
    return e.slice(x, begin, end, by)


def _write_strided_slice(w: Writing, node: Node) -> Names:
    """Masks are bits for each of its entries: from the start, to the end, all axes between, a new axis, one element."""
    begin, end, steps = (list(plain(node, i)) for i in (1, 2, 3))
    from_start, to_end, rest, new, one = (int(plain(node, i, 0)) for i in range(4, 9))
    if rest or new:
        raise Unsupported("an ellipsis or a new axis among its slices")
    dropped = [i for i in range(len(steps)) if one >> i & 1]
    for i, step in enumerate(steps):
        if i in dropped:
            end[i], steps[i] = begin[i] + 1 if begin[i] != -1 else _FAR, 1
            continue
        if from_start >> i & 1:
            begin[i] = 0 if step > 0 else _FAR
        if to_end >> i & 1:
            end[i] = _FAR if step > 0 else -_FAR
    made = _sliced(w, node, begin, end, steps)
    return w.add("Squeeze", [made, w.ints(dropped)]) if dropped else made


def _sliced(w: Writing, node: Node, begin: Ints, end: Ints, steps: Ints = (), axes: Ints = ()) -> str:
    n = len(begin)
    return w.add("Slice", [w.name(node.operand(0)), *map(w.ints, (begin, end, axes or range(n), steps or [1] * n))])


def _write_reverse(w: Writing, node: Node) -> Names:
    axes = [int(a) for a in plain(node, 1)]
    return _sliced(w, node, [-1] * len(axes), [-_FAR] * len(axes), [-1] * len(axes), axes)


def _read_pad(c: Call) -> Value:
    e, x, rank, given = c.e, c.value(0), c.rank(), c.ints(1)
    axes, before, after = c.axes(3), [0] * rank, [0] * rank
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


def _padded(w: Writing, node: Node, pairs: Sequence[Ints], value: Sequence[str] = (), mode: Any = "constant") -> str:
    """A pair for each axis, as ONNX has them: all in front, then all behind."""
    mode = str(mode).lower()
    if mode not in ("constant", "reflect", "edge"):
        raise Unsupported(f"padding of mode {mode}")
    pads = w.ints([int(p[i]) for i in (0, 1) for p in pairs])
    return w.add("Pad", [w.name(node.operand(0)), pads, *value], mode=mode)


def _write_pad_v3(w: Writing, node: Node) -> Names:
    """Pairs for the last axes, the last one first."""
    mode = str(node.attributes.get("mode", "constant"))
    if not node.attributes.get("paddings_contiguous", True):
        raise Unsupported("pads that are not a pair for each axis")
    flat = [int(v) for v in plain(node, 1)]
    given = list(zip(flat[::2], flat[1::2], strict=True))[::-1]
    pairs = [*[(0, 0)] * (len(shape_of(node.operand(0))) - len(given)), *given]
    value = [w.scalar(node, plain(node, 2))] if mode == "constant" and node.num_operands > 2 else []
    return _padded(w, node, pairs, value, mode)


def _filled(value: float, w: Writing, node: Node) -> Names:
    if min(shape_of(node), default=0) < 0:
        filled = w.constant(np.array(value, dtype_of(node).value))
        return w.add("Expand", [filled, w.add("Shape", w.inputs(node, 1))])
    return w.constant(np.full(shape_of(node), value, dtype_of(node).value))


TABLE = (
    Entry("Reshape", "Reshape", lambda c: c.e.reshape(c.value(0), c.known(1).result), _write_reshape),
    Entry("Flatten", "Flatten", lambda c: c.e.reshape(c.value(0), c.known(1).result), _write_reshape),
    Entry("Squeeze", "Squeeze", lambda c: c.e.reshape(c.value(0), c.known(1).result), _write_reshape),
    Entry("Unsqueeze", "ExpandDims", lambda c: c.e.reshape(c.value(0), c.known(1).result), _write_reshape),
    Entry("Transpose", "Transpose", lambda c: c.e.transpose(c.value(0), c.attribute("perm") or range(c.rank())[::-1]),
          lambda w, node: w.add("Transpose", w.inputs(node, 1), perm=[i % w.rank(node) for i in plain(node, 1)])),
    Entry("Expand", "BroadcastTo", lambda c: c.e.expand(c.value(0), c.known(1).result), _write_expand),
    Entry("Tile", "Tile", lambda c: c.e.emit("Tile", [c.value(0), tuple(c.ints(1))], c.result), _write_tile),
    Entry("DepthToSpace", read=_read_depth_to_space),
    Entry("SpaceToDepth", read=_read_space_to_depth),
    Entry("Concat", "Concat", _read_concat,
          lambda w, node: w.add("Concat", w.elements(node.operand(0)), axis=int(plain(node, 1, 0)))),
    Entry("", "Stack", None, _write_stack),
    Entry("Split", "Split", _read_split, _write_split),
    Entry("", "Unstack", None, _write_unstack),
    Entry("", "MakeTuple", None, lambda w, node: tuple(w.name(v) for v in node.operands)),
    Entry("", "TupleGetItem", None, _write_item),
    Entry("Slice", "StridedSlice", _read_slice, _write_strided_slice),
    Entry("", "Slice", None, lambda w, node: _sliced(w, node, plain(node, 1), [
        _FAR if n == -1 else b + n for b, n in zip(plain(node, 1), plain(node, 2), strict=True)])),
    Entry("", "ReverseV2", None, _write_reverse),
    Entry("Pad", "Pad", _read_pad, lambda w, node: _padded(w, node, node.attributes["paddings"])),
    Entry("", "PadV3", None, _write_pad_v3),
    Entry("", "MirrorPad", None, lambda w, node: _padded(w, node, plain(node, 1), mode=node.attributes.get("mode"))),
    Entry("Shape", read=lambda c: np.array(c.shape()[c.attribute("start") : c.attribute("end")], np.int64)),
    Entry("Size", read=lambda c: np.array(math.prod(c.shape()), np.int64)),
    Entry("", "ZerosLike", None, partial(_filled, 0)),
    Entry("", "OnesLike", None, partial(_filled, 1)),
)  # fmt: skip
