"""Primitives that only move elements: reshaping, joining, slicing, gathering, padding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ....core.graph import Node
from ....core.types import TupleType
from ..operators import Unsupported, dtype_of, shape_of
from .writing import Names, Rule, Writing, plain

_FAR = 2**31 - 1


def _reshape(w: Writing, node: Node) -> Names:
    """To the result's shape; an open size is the rest."""
    shape = [d if d >= 0 else -1 for d in shape_of(node)]
    if shape.count(-1) > 1:
        raise Unsupported("several sizes are open")
    return w.add("Reshape", [w.name(node.operand(0)), w.ints(shape)])


def _transpose(w: Writing, node: Node) -> Names:
    rank = len(shape_of(node))
    return w.add("Transpose", w.inputs(node, 1), perm=[int(i) % rank for i in plain(node, 1)])


def _concat(w: Writing, node: Node) -> Names:
    return w.add("Concat", _elements(w, node), axis=int(plain(node, 1, 0)))


def _elements(w: Writing, node: Node) -> list[str]:
    names = w.names(node.operand(0))
    if isinstance(names, str) or None in names:
        raise Unsupported("it joins what is no tuple of tensors")
    return [n for n in names if n is not None]


def _stack(w: Writing, node: Node) -> Names:
    axis = int(node.attributes["axis"] if "axis" in node.attributes else plain(node, 1, 0))
    at = w.ints([axis])
    return w.add("Concat", [w.add("Unsqueeze", [name, at]) for name in _elements(w, node)], axis=axis)


def _unstack(w: Writing, node: Node) -> Names:
    axis, count = int(node.attributes["axis"]), int(node.attributes["num"])
    parts = w.add_several("Split", [w.name(node.operand(0)), w.ints([1] * count)], count, axis=axis)
    return tuple(w.add("Squeeze", [part, w.ints([axis])]) for part in parts)


def _lookup(w: Writing, node: Node) -> Names:
    if plain(node, 2, 0) != 0:
        raise Unsupported("a table that begins elsewhere")
    return w.add("Gather", w.inputs(node, 2), axis=0)


def _split(w: Writing, node: Node) -> Names:
    assert isinstance(node.type, TupleType)
    axis = int(plain(node, 1, 0))
    count = len(node.type.elements)
    if shape_of(node.operand(0))[axis] < 0:
        raise Unsupported("it splits along an open size")
    sizes = w.ints([shape_of(node.operand(0))[axis] // count] * count)
    return w.add_several("Split", [w.name(node.operand(0)), sizes], count, axis=axis)


def _strided_slice(w: Writing, node: Node) -> Names:
    """Masks are bits for each of its entries: from the start, to the end, all axes between, a new axis, one element."""
    begin, end, steps = (list(plain(node, i)) for i in (1, 2, 3))
    from_start, to_end, rest, new, one = (int(plain(node, i, 0)) for i in range(4, 9))
    if rest or new:
        raise Unsupported("an ellipsis or a new axis among its slices")
    dropped = []
    for i, step in enumerate(steps):
        if one >> i & 1:
            dropped.append(i)
            end[i], steps[i] = begin[i] + 1 if begin[i] != -1 else _FAR, 1
            continue
        if from_start >> i & 1:
            begin[i] = 0 if step > 0 else _FAR
        if to_end >> i & 1:
            end[i] = _FAR if step > 0 else -_FAR
    made = _sliced(w, w.name(node.operand(0)), begin, end, steps)
    return w.add("Squeeze", [made, w.ints(dropped)]) if dropped else made


def _sliced(w: Writing, x: str, begin: Sequence[int], end: Sequence[int], steps: Sequence[int]) -> str:
    axes = w.ints(range(len(begin)))
    return w.add("Slice", [x, w.ints(begin), w.ints(end), axes, w.ints(steps)])


def _slice(w: Writing, node: Node) -> Names:
    begin = plain(node, 1)
    end = [_FAR if n == -1 else b + n for b, n in zip(begin, plain(node, 2), strict=True)]
    return _sliced(w, w.name(node.operand(0)), begin, end, [1] * len(end))


def _reverse(w: Writing, node: Node) -> Names:
    axes = [int(a) for a in plain(node, 1)]
    n = len(axes)
    x = w.name(node.operand(0))
    return w.add("Slice", [x, w.ints([-1] * n), w.ints([-_FAR] * n), w.ints(axes), w.ints([-1] * n)])


def _tile(w: Writing, node: Node) -> Names:
    """As many axes as there are repeats: those that the operand lacks come in front."""
    x, repeats = w.name(node.operand(0)), list(plain(node, 1))
    missing = len(repeats) - len(shape_of(node.operand(0)))
    return w.add("Tile", [w.add("Unsqueeze", [x, w.ints(range(missing))]) if missing > 0 else x, w.ints(repeats)])


def _broadcast(w: Writing, node: Node) -> Names:
    """An open size is that of the operand, which Expand keeps where it is told 1."""
    shape, own = shape_of(node), shape_of(node.operand(0))
    aligned = (*(1 for _ in range(len(shape) - len(own))), *own)
    if any(d < 0 <= o for d, o in zip(shape, aligned, strict=True)):
        raise Unsupported("an open size that its operand does not have")
    return w.add("Expand", [w.name(node.operand(0)), w.ints([max(d, 1) for d in shape])])


def _gather(w: Writing, node: Node) -> Names:
    if plain(node, 3, 0):
        raise Unsupported("batch dimensions")
    return w.add("Gather", w.inputs(node, 2), axis=int(plain(node, 2, 0)))


def _gather_nd(w: Writing, node: Node) -> Names:
    return w.add("GatherND", [w.name(node.operand(0)), w.add("Cast", [w.name(node.operand(1))], to=7)])


def _scatter_nd(reduction: str, w: Writing, node: Node) -> Names:
    x, indices, updates = w.inputs(node, 3)
    return w.add("ScatterND", [x, w.add("Cast", [indices], to=7), updates], reduction=reduction)


def _scatter_elements(w: Writing, node: Node) -> Names:
    reduction = {0: "none", 1: "add"}.get(plain(node, 4, 0))
    if reduction is None:
        raise Unsupported("another reduction than the sum")
    return w.add("ScatterElements", w.inputs(node, 3), axis=int(plain(node, 3)), reduction=reduction)


def _pad(w: Writing, node: Node) -> Names:
    return w.add("Pad", [w.name(node.operand(0)), _paired(w, node.attributes["paddings"])])


def _paired(w: Writing, pairs: Sequence[Sequence[int]]) -> str:
    """A pair for each axis, as ONNX has them: all in front, then all behind."""
    return w.ints([int(p[0]) for p in pairs] + [int(p[1]) for p in pairs])


def _pad_v3(w: Writing, node: Node) -> Names:
    """Pairs for the last axes, the last one first."""
    mode = str(node.attributes.get("mode", "constant"))
    if mode not in ("constant", "reflect", "edge") or not node.attributes.get("paddings_contiguous", True):
        raise Unsupported(f"padding of mode {node.attributes.get('mode')}")
    flat = [int(v) for v in plain(node, 1)]
    rank = len(shape_of(node.operand(0)))
    pads = [0] * 2 * rank
    for k in range(len(flat) // 2):
        pads[rank - 1 - k], pads[2 * rank - 1 - k] = flat[2 * k], flat[2 * k + 1]
    value = [w.scalar(node, plain(node, 2))] if mode == "constant" and node.num_operands > 2 else []
    return w.add("Pad", [w.name(node.operand(0)), w.ints(pads), *value], mode=mode)


def _mirror_pad(w: Writing, node: Node) -> Names:
    if node.attributes.get("mode") != "REFLECT":
        raise Unsupported(f"padding of mode {node.attributes.get('mode')}")
    return w.add("Pad", [w.name(node.operand(0)), _paired(w, plain(node, 1))], mode="reflect")


def _one_hot(w: Writing, node: Node) -> Names:
    """(indices, depth, on, off, axis)"""
    on, off = (w.add("Reshape", [w.name(node.operand(i)), w.ints([1])]) for i in (2, 3))
    values = w.add("Concat", [off, on], axis=0)
    depth = w.ints([int(plain(node, 1))])
    return w.add("OneHot", [w.name(node.operand(0)), depth, values], axis=int(plain(node, 4, -1)))


def _top_k(w: Writing, node: Node) -> Names:
    k = plain(node, 1)
    k = k[0] if isinstance(k, (list, tuple)) else k
    values, places = w.add_several("TopK", [w.name(node.operand(0)), w.ints([int(k)])], 2, axis=-1)
    return (values, w.add("Cast", [places], to=6))


def _triangle(upper: int, w: Writing, node: Node) -> Names:
    k = node.attributes["diagonal"] if "diagonal" in node.attributes else plain(node, 1, 0)
    return w.add("Trilu", [w.name(node.operand(0)), w.ints([int(k)])], upper=upper)


def _make_tuple(w: Writing, node: Node) -> Names:
    names = [w.names(v) for v in node.operands]
    if not all(isinstance(n, str) for n in names):
        raise Unsupported("a tuple of tuples")
    return tuple(n for n in names if isinstance(n, str))


def _item(w: Writing, node: Node) -> Names:
    names = w.names(node.operand(0))
    found: str | None = names[plain(node, 1)] if isinstance(names, tuple) else None
    if found is None:
        raise Unsupported("it takes a result that the operator has no counterpart for")
    return found


def _filled(value: float, w: Writing, node: Node) -> Names:
    import numpy as np

    if min(shape_of(node), default=0) < 0:
        filled = w.constant(np.array(value, dtype_of(node).value))
        return w.add("Expand", [filled, w.add("Shape", w.inputs(node, 1))])
    return w.constant(np.full(shape_of(node), value, dtype_of(node).value))


RULES: dict[str, Rule] = {
    **dict.fromkeys(("Reshape", "ExpandDims", "Squeeze", "Flatten"), _reshape),
    "Transpose": _transpose,
    "Concat": _concat,
    "Stack": _stack,
    "Split": _split,
    "Unstack": _unstack,
    "EmbeddingLookup": _lookup,
    "StridedSlice": _strided_slice,
    "Slice": _slice,
    "ReverseV2": _reverse,
    "Tile": _tile,
    "BroadcastTo": _broadcast,
    "Gather": _gather,
    "GatherNd": _gather_nd,
    "TensorScatterUpdate": partial(_scatter_nd, "none"),
    "TensorScatterAdd": partial(_scatter_nd, "add"),
    "TensorScatterElements": _scatter_elements,
    "Pad": _pad,
    "PadV3": _pad_v3,
    "MirrorPad": _mirror_pad,
    "OneHot": _one_hot,
    "TopK": _top_k,
    "Tril": partial(_triangle, 0),
    "Triu": partial(_triangle, 1),
    "MakeTuple": _make_tuple,
    "TupleGetItem": _item,
    "ZerosLike": partial(_filled, 0),
    "OnesLike": partial(_filled, 1),
}
