"""The batch through what moves, cuts and joins axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...core.graph import Constant, Node
from ...core.paddings import widths_by_axis
from ...core.sites import site
from ...core.types import TupleType
from .constants import integer, integers, values
from .spans import NONE, Axes, Span, Stuck, joined, reshaped
from .sweep import Analysis, Label, shape_of

SHAPE_OPERAND: Mapping[str, int] = {
    "Reshape": 1, "BroadcastTo": 1, "Conv2DBackpropInput": 2, "Conv2DTranspose": 2, "StridedSliceGrad": 1, "Zeros": 0,
    "Ones": 0, "FillV2": 0, "FillScalar": 0, "UniformReal": 0, "StandardNormal": 0, "AvgPool3DGrad": 0,
    "AdaptiveAvgPool2DGrad": 1, "Slice": 2, "SliceGrad": 3, "ScatterNd": 2,
    "UpsampleBilinear2DGrad": 1, "Conv3DBackpropInput": 2,
}  # fmt: skip
"""Which operand is the shape of the result, or at least has its extent on axes that hold the batch."""


def _reshape(a: Analysis, node: Node) -> Label:
    return reshaped(shape_of(node.operand(0).type), a.of(node, 0), shape_of(node.type))


def _grow_reshape(a: Analysis, node: Node, axes: Axes) -> None:
    a.demand(node, 0, reshaped(shape_of(node.type), axes, shape_of(node.operand(0).type)))


def _moves(node: Node) -> dict[int, int]:
    """Axis of the operand to axis of the result, for what only adds, drops or permutes axes."""
    shape = shape_of(node.operand(0).type)
    rank = len(shape)
    name = node.op.name
    if name == "Transpose":
        return {k % rank: j for j, k in enumerate(integers(node, 1))}
    if name == "ExpandDims":
        at = integer(node, 1) % (rank + 1)
        return {k: k + (k >= at) for k in range(rank)}
    gone = integers(node, 1) if node.num_operands > 1 else node.op.attributes.get("axis", ())
    axes = {k % rank for k in ((gone,) if isinstance(gone, int) else gone)}
    dropped = {k for k in range(rank) if shape[k] == 1 and (not axes or k in axes)}
    left = [k for k in range(rank) if k not in dropped]
    return {k: j for j, k in enumerate(left)}


def _move(a: Analysis, node: Node) -> Label:
    moves = _moves(node)
    axes = a.of(node, 0)
    if not set(axes) <= set(moves):
        raise Stuck("it drops the batch, whose size is 1")
    return {moves[k]: s for k, s in axes.items()}


def _grow_move(a: Analysis, node: Node, axes: Axes) -> None:
    a.demand_behind(node, _moves(node), axes, "makes the axis that would have to grow with the batch")


def _tile(a: Analysis, node: Node) -> Label:
    rank, own = len(shape_of(node.type)), len(shape_of(node.operand(0).type))
    times = integers(node, 1)
    times = (1,) * (rank - len(times)) + times
    return {k + rank - own: Span(s.outer * times[k + rank - own], s.inner) for k, s in a.of(node, 0).items()}


def _grow_tile(a: Analysis, node: Node, axes: Axes) -> None:
    shape = shape_of(node.operand(0).type)
    rank = len(shape_of(node.type))
    for k, span in axes.items():
        at = k - rank + len(shape)
        if at >= 0 and shape[at] != 1:
            times = integers(node, 1)[k - rank]
            if span.outer % times:
                raise Stuck(f"%{node.name} (Tile) repeats what would have to grow with the batch")
            a.demand(node, 0, {at: Span(span.outer // times, span.inner)})


def _broadcast(a: Analysis, node: Node) -> Label:
    shift = len(shape_of(node.type)) - len(shape_of(node.operand(0).type))
    return {k + shift: s for k, s in a.of(node, 0).items()}


def _grow_broadcast(a: Analysis, node: Node, axes: Axes) -> None:
    shape = shape_of(node.operand(0).type)
    shift = len(shape_of(node.type)) - len(shape)
    wanted = {k - shift: s for k, s in axes.items() if k >= shift and shape[k - shift] != 1}
    if wanted:
        a.demand(node, 0, wanted)


def _grow_fill(a: Analysis, node: Node, axes: Axes) -> None:
    if not isinstance(node.operand(0), Constant):
        raise Stuck(f"{site(node)} has a computed shape")


def _scatter(a: Analysis, node: Node) -> Label:
    """Zeros, to which updates are added where indices say. The indices may number samples, or classes that all samples
    share: where samples have to be, who takes the result says (:func:`_grow_scatter`)."""
    places, depth = _places(node)
    at = a.of(node, 0)
    if places in at:
        raise Stuck("the numbers of one index hold the batch")
    updates = a.of(node, 1)
    both = joined(at, {k: s for k, s in updates.items() if k < places})
    if both:
        a.demand(node, 0, both)
        a.demand(node, 1, {**updates, **both})
    return {k - places + depth: s for k, s in updates.items() if k >= places}


def _grow_scatter(a: Analysis, node: Node, axes: Axes) -> None:
    if not isinstance(node.operand(2), Constant):
        raise Stuck(f"{site(node)} has a computed shape")
    places, depth = _places(node)
    if not all(k < depth for k in axes):
        a.demand(node, 1, {**a.of(node, 1), **{k - depth + places: s for k, s in axes.items() if k >= depth}})
    elif not a.of(node, 0):
        raise Stuck(f"{site(node)} puts nothing of the batch where it would have to grow with it")


def _places(node: Node) -> tuple[int, int]:
    """How many axes the indices of a ScatterNd have, and how many axes of its result each of them names."""
    *axes, depth = shape_of(node.operand(0).type)
    return len(axes), depth


def _elements(node: Node) -> list[tuple[int, ...]]:
    type_ = node.operand(0).type
    return [shape_of(t) for t in type_.elements] if isinstance(type_, TupleType) else []


def _demand_of_each(a: Analysis, node: Node, axes: Axes) -> None:
    for k in range(len(_elements(node))):
        a.demand(node, 0, axes, (k,))


def _axis(node: Node, rank: int) -> int:
    at = node.op.attributes.get("axis")
    if node.op.name == "Split" and node.num_operands > 1:
        at = integer(node, 1)  # behind it stands the number of parts
    return (at if isinstance(at, int) else integer(node, node.num_operands - 1)) % rank


def _concat(a: Analysis, node: Node) -> Label:
    shapes = _elements(node)
    axis = _axis(node, len(shape_of(node.type)))
    labels = [a.of(node, 0, (k,)) for k in range(len(shapes))]
    axes: dict[int, Span] = {}
    for label in labels:
        axes = joined(axes, {k: s for k, s in label.items() if k != axis})
    _demand_of_each(a, node, axes)
    along = [label.get(axis) for label in labels]
    if any(along):
        span = along[0]
        if span is None or span.outer != 1 or any(s != span for s in along):
            raise Stuck("it joins samples of the batch with something else")
        axes[axis] = Span(len(along), span.inner)
    return axes


def _grow_concat(a: Analysis, node: Node, axes: Axes) -> None:
    if _axis(node, len(shape_of(node.type))) in axes:
        raise Stuck(f"%{node.name} (Concat) joins what would have to grow with the batch")
    _demand_of_each(a, node, axes)


def _grow_stack(a: Analysis, node: Node, axes: Axes) -> None:
    at = _axis(node, len(shape_of(node.type)))
    if at in axes:
        raise Stuck(f"%{node.name} (Stack) makes the axis that would have to grow with the batch")
    _demand_of_each(a, node, {j - (j > at): s for j, s in axes.items()})


def _stack(a: Analysis, node: Node) -> Label:
    shapes = _elements(node)
    at = _axis(node, len(shape_of(node.type)))
    axes: Axes = NONE
    for k in range(len(shapes)):
        axes = joined(axes, a.of(node, 0, (k,)))
    _demand_of_each(a, node, axes)
    return {k + (k >= at): s for k, s in axes.items()}


def _split(a: Analysis, node: Node) -> Label:
    """Unstack drops the axis that it takes apart, the splits keep it."""
    axes = a.of(node, 0)
    at = _axis(node, len(shape_of(node.operand(0).type)))
    if at in axes:
        raise Stuck("it takes the batch apart")
    drop = node.op.name == "Unstack"
    part = {k - (drop and k > at): s for k, s in axes.items()}
    count = len(node.type.elements) if isinstance(node.type, TupleType) else 0
    return (part,) * count


def slice_axes(node: Node) -> tuple[dict[int, int], set[int], set[int]]:
    """Axis of the big tensor to axis of a StridedSlice (or gradient); the whole axes; those that end at a number."""
    grad = node.op.name == "StridedSliceGrad"
    big = shape_of(node.type if grad else node.operand(0).type)
    first = 2 if grad else 1
    begin, end, strides = (integers(node, first + k) for k in range(3))
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    at = {k: node.op.attributes.get(k) for k in names}
    masks = [v if isinstance(v, int) else integer(node, first + 3 + i) for i, v in enumerate(at.values())]
    if masks[2] & ((1 << len(begin)) - 1) or masks[3] & ((1 << len(begin)) - 1):
        raise Stuck("it slices with an ellipsis or a new axis")
    moves: dict[int, int] = {}
    whole, ended = set(range(len(begin), len(big))), set()
    for k in range(len(big)):
        inside = k < len(begin)
        if inside and masks[4] >> k & 1:
            continue
        moves[k] = len(moves)
        starts = inside and (masks[0] >> k & 1 or begin[k] == 0) and strides[k] == 1
        if starts and (masks[1] >> k & 1 or end[k] == big[k]):
            whole.add(k)
            if not masks[1] >> k & 1:
                ended.add(k)
    return moves, whole, ended


def _slice(a: Analysis, node: Node) -> Label:
    moves, whole, ended = slice_axes(node)
    axes = a.of(node, 0)
    for k in axes:
        if k not in moves or k not in whole:
            raise Stuck("it takes a part of the batch")
    a.found.ends[node] = ended & set(axes)
    return {moves[k]: s for k, s in axes.items()}


def _grow_slice(a: Analysis, node: Node, axes: Axes) -> None:
    moves, whole, ended = slice_axes(node)
    back = {j: k for k, j in moves.items() if k in whole}
    if not set(axes) <= set(back):
        raise Stuck(f"%{node.name} (StridedSlice) takes a part of what would have to grow with the batch")
    a.found.ends[node] = {back[j] for j in axes} & ended
    a.demand(node, 0, {back[j]: s for j, s in axes.items()})


def _slice_grad(a: Analysis, node: Node) -> Label:
    moves, whole, ended = slice_axes(node)
    back = {j: k for k, j in moves.items()}
    axes = {back[j]: s for j, s in a.of(node, 0).items()}
    if not set(axes) <= whole:
        raise Stuck("it is the gradient of a part of the batch")
    a.found.ends[node] = ended & set(axes)
    return axes


def _grow_slice_grad(a: Analysis, node: Node, axes: Axes) -> None:
    moves, whole, _ = slice_axes(node)
    if not set(axes) <= whole & set(moves):
        raise Stuck(f"%{node.name} (StridedSliceGrad) is the gradient of a part of what would have to grow")
    a.demand(node, 0, {moves[k]: s for k, s in axes.items()})


def _padded(node: Node) -> set[int]:
    """The axes that a padding makes longer."""
    if node.op.name == "Pad":
        return {k for k, ends in enumerate(node.op.attributes.get("paddings", ())) if any(ends)}
    given = values(node, 1)
    if node.op.name.startswith("PadV3"):
        widths = widths_by_axis(node, given, len(shape_of(node.operand(0).type)))
    else:
        widths = list(zip(given[::2], given[1::2], strict=True))
    return {k for k, ends in enumerate(widths) if any(ends)}


def _moved_along(dims: int) -> Callable[[Node], set[int]]:
    """The axes that operand ``dims`` names."""
    return lambda node: {k % len(shape_of(node.operand(0).type)) for k in integers(node, dims)}


def _unless(touched: Callable[[Node], set[int]], why: str) -> Callable[[Analysis, Node], Label]:
    """A primitive that leaves an axis as it is, unless it is one of those ``touched``: then the batch is stuck."""

    def rule(a: Analysis, node: Node) -> Label:
        axes = a.of(node, 0)
        if touched(node) & set(axes):
            raise Stuck(why)
        return axes

    return rule


def _grow_unless(touched: Callable[[Node], set[int]], verb: str) -> Callable[[Analysis, Node, Axes], None]:
    def rule(a: Analysis, node: Node, axes: Axes) -> None:
        if touched(node) & set(axes):
            raise Stuck(f"{site(node)} {verb} what would have to grow with the batch")
        a.demand(node, 0, axes)

    return rule


def _sliced_whole(node: Node, first: int) -> set[int]:
    """The axes that a Slice, whose begin is operand ``first``, takes whole."""
    begin, size = integers(node, first), integers(node, first + 1)
    shape = shape_of(node.operand(0 if first == 1 else 1).type)
    return {k for k, d in enumerate(shape) if begin[k] == 0 and size[k] in (d, -1)}


def _cut(node: Node) -> set[int]:
    return set(range(len(shape_of(node.type)))) - _sliced_whole(node, 1)


def _plain_slice_grad(a: Analysis, node: Node) -> Label:
    axes = joined(a.of(node, 0), a.of(node, 1))
    if not set(axes) <= _sliced_whole(node, 2):
        raise Stuck("it is the gradient of a part of the batch")
    for i in (0, 1):
        a.demand(node, i, axes)
    return axes


_MOVES = ("Transpose", "ExpandDims", "Squeeze")
_PADS = ("Pad", "PadV3", "PadV3Grad", "MirrorPad", "MirrorPadGrad")
_ELSEWHERE = "it moves samples of the batch to other places"
_FILLS = ("Zeros", "Ones", "FillV2", "FillScalar", "UniformReal", "StandardNormal")
SHAPE_RULES: dict[str, Callable[[Analysis, Node], Label]] = {
    **dict.fromkeys(_MOVES, _move),
    **dict.fromkeys(("Reshape", "Flatten"), _reshape),
    **dict.fromkeys(("Unstack", "Split", "SplitWithSize", "SplitTensor"), _split),
    **dict.fromkeys(_FILLS, lambda a, node: NONE),
    "Tile": _tile,
    "BroadcastTo": _broadcast,
    "Concat": _concat,
    "Stack": _stack,
    "StridedSlice": _slice,
    "StridedSliceGrad": _slice_grad,
    "Slice": _unless(_cut, "it takes a part of the batch"),
    "SliceGrad": _plain_slice_grad,
    "ScatterNd": _scatter,
    **dict.fromkeys(_PADS, _unless(_padded, "it pads the batch")),
    "Roll": _unless(_moved_along(2), _ELSEWHERE),
    "ReverseV2": _unless(_moved_along(1), _ELSEWHERE),
}
SHAPE_GROWS: dict[str, Callable[[Analysis, Node, Axes], None]] = {
    **dict.fromkeys(_MOVES, _grow_move),
    **dict.fromkeys(("Reshape", "Flatten"), _grow_reshape),
    **dict.fromkeys(_FILLS, _grow_fill),
    "Tile": _grow_tile,
    "BroadcastTo": _grow_broadcast,
    "StridedSlice": _grow_slice,
    "StridedSliceGrad": _grow_slice_grad,
    "Concat": _grow_concat,
    "Stack": _grow_stack,
    "Slice": _grow_unless(_cut, "takes a part of"),
    "Pad": _grow_unless(_padded, "pads"),
    "ScatterNd": _grow_scatter,
}
