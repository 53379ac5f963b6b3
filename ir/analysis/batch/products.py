"""The batch through matrix products, reductions, look-ups and normalisation."""

from __future__ import annotations

from collections.abc import Callable

from ...core.graph import Node
from ...core.primitives import Family, named
from .constants import integer, integers
from .spans import NONE, Axes, Span, Stuck, joined
from .sweep import Analysis, Label, shape_of


def _matmul_axes(node: Node) -> tuple[int, int, int, int]:
    """(row of a, contraction of a, contraction of b, column of b), as axes from the end."""
    transposed = [
        bool(node.op.attributes.get(name) or (node.num_operands > i and node.operand(i).literal is True))
        for name, i in (("transpose_a", 2), ("transpose_b", 3))
    ]
    row, inner = (-1, -2) if transposed[0] else (-2, -1)
    other, column = (-1, -2) if transposed[1] else (-2, -1)
    return row, inner, other, column


def _matmul(a: Analysis, node: Node) -> Label:
    shapes = [shape_of(node.operand(0).type), shape_of(node.operand(1).type)]
    if min(map(len, shapes)) < 2:
        raise Stuck("it is a product with a vector")
    row, inner, other, column = _matmul_axes(node)
    ranks = [len(s) for s in shapes]
    from_end = [{k - rank: s for k, s in a.of(node, i).items()} for i, rank in enumerate(ranks)]
    first, second = from_end[0].get(inner), from_end[1].get(other)
    if first is not None and second is None:
        a.demand(node, 1, {other + ranks[1]: first})
    elif second is not None and first is None:
        a.demand(node, 0, {inner + ranks[0]: second})
    elif first != second:
        raise Stuck("it sums over axes that hold the batch in different ways")
    rank = len(shape_of(node.type))
    leading = joined(
        {k + rank: s for k, s in from_end[0].items() if k < -2}, {k + rank: s for k, s in from_end[1].items() if k < -2}
    )
    for i in (0, 1):
        missing = {
            k - rank + ranks[i]: s
            for k, s in leading.items()
            if k - rank >= -ranks[i] and k - rank not in from_end[i] and shapes[i][k - rank] != 1
        }
        if missing:
            a.demand(node, i, missing)
    for at, where, axes in ((-2, row, from_end[0]), (-1, column, from_end[1])):
        if where in axes:
            leading[at + rank] = axes[where]
    return leading


def _grow_matmul(a: Analysis, node: Node, axes: Axes) -> None:
    row, _, _, column = _matmul_axes(node)
    rank = len(shape_of(node.type))
    for k, span in axes.items():
        if k == rank - 2:
            a.demand(node, 0, {row + len(shape_of(node.operand(0).type)): span})
        elif k == rank - 1:
            a.demand(node, 1, {column + len(shape_of(node.operand(1).type)): span})
        else:
            for i in (0, 1):
                shape = shape_of(node.operand(i).type)
                at = k - rank + len(shape)
                if at >= 0 and shape[at] != 1:
                    a.demand(node, i, {at: span})


_ONE_PLACE = frozenset({"Argmax", "Argmin"})
_PLACES = _ONE_PLACE | {"ArgMaxWithValue", "ArgMinWithValue"}


def reduced_axes(node: Node) -> tuple[set[int], bool]:
    """The axes that a reduction sums over, and whether they stay as ones."""
    rank = len(shape_of(node.operand(0).type))
    name = node.op.name
    if name in _PLACES:
        return {integer(node, 1) % rank}, name not in _ONE_PLACE and node.operand(2).literal is True
    if name in ("Max", "Min") or node.num_operands < 2:
        return set(range(rank)), False
    axes = integers(node, 1)
    keep = node.num_operands > 2 and node.operand(2).literal is True
    return ({k % rank for k in axes} or set(range(rank))) if rank else set(), keep


def _kept(node: Node) -> dict[int, int]:
    """Axis of the operand to axis of the result."""
    gone, keep = reduced_axes(node)
    rank = len(shape_of(node.operand(0).type))
    left = [k for k in range(rank) if keep or k not in gone]
    return {k: j for j, k in enumerate(left) if k not in gone}


def _reduction(a: Analysis, node: Node) -> Label:
    kept = _kept(node)
    return {kept[k]: s for k, s in a.of(node, 0).items() if k in kept}


def _place_and_value(a: Analysis, node: Node) -> Label:
    axes = _reduction(a, node)
    return (axes, axes)


def _grow_reduction(a: Analysis, node: Node, axes: Axes) -> None:
    a.demand_behind(node, _kept(node), axes, "has nothing that could grow with the batch")


_NORMALISED = {"LayerNorm": 3, "LayerNormGrad": 5, "LayerNormExt": 1, "LayerNormGradExt": 2}
"""The operand that says where the normalised axes begin; of the last two, their shape."""


def _layer_norm(a: Analysis, node: Node) -> Label:
    name, at = node.op.name, _NORMALISED[node.op.name]
    rank = len(shape_of(node.operand(0).type))
    begin = rank - len(integers(node, at)) if name.endswith("Ext") else integer(node, at) % rank
    grad = "Grad" in name
    axes = joined(a.of(node, 0), a.of(node, 1)) if grad else a.of(node, 0)
    if any(k >= begin for k in axes):
        raise Stuck("it normalises over the batch")
    if not grad:
        return (axes, axes, axes)
    for i in (0, 1, 3, 4) if name.endswith("Ext") else (0, 1):
        a.demand(node, i, axes)
    return (axes, NONE, NONE)


def _dense(a: Analysis, node: Node) -> Label:
    axes = a.of(node, 0)
    if len(shape_of(node.operand(0).type)) - 1 in axes or any(a.of(node, i) for i in range(1, node.num_operands)):
        raise Stuck("it sums over the batch, or its weight holds it")
    return axes


def _equation(node: Node) -> tuple[list[str], str]:
    equation = str(node.op.attributes.get("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    if not arrow or "." in equation:
        raise Stuck(f"its equation '{equation}' does not name all axes")
    return left.split(","), right


def _einsum(a: Analysis, node: Node) -> Label:
    """Axes of one letter are one axis."""
    terms, result = _equation(node)
    gradient = node.op.name == "EinsumGrad"
    places = [*((0, (k,), term) for k, term in enumerate(terms)), *([(1, (), result)] if gradient else [])]
    letters: dict[int, Span] = {}
    for i, path, term in places:
        letters = joined(letters, {ord(term[k]): s for k, s in a.of(node, i, path).items()})
    for i, path, term in places:
        a.demand(node, i, {k: letters[ord(x)] for k, x in enumerate(term) if ord(x) in letters}, path)
    labels = [{k: letters[ord(x)] for k, x in enumerate(t) if ord(x) in letters} for t in (*terms, result)]
    return tuple(labels[:-1]) if gradient else labels[-1]


def _gather(a: Analysis, node: Node) -> Label:
    axis = integer(node, 2) % max(len(shape_of(node.operand(0).type)), 1) if node.op.name == "Gather" else 0
    if node.op.name == "Gather" and node.num_operands > 3 and integer(node, 3) != 0:
        raise Stuck("it looks up with batch_dims")
    table, index = a.of(node, 0), a.of(node, 1)
    if axis in table:
        raise Stuck("it picks samples of the batch by their index")
    more = len(shape_of(node.operand(1).type)) - 1
    found: dict[int, Span] = {k if k < axis else k + more: s for k, s in table.items()}
    return joined(found, {k + axis: s for k, s in index.items()})


def _segment_sum(a: Analysis, node: Node) -> Label:
    rank = len(shape_of(node.operand(1).type))
    axes = a.of(node, 0)
    over = joined({k: s for k, s in axes.items() if k < rank}, a.of(node, 1))
    for i in (0, 1):
        a.demand(node, i, over)
    return {k - rank + 1: s for k, s in axes.items() if k >= rank}


def _one_hot(a: Analysis, node: Node) -> Label:
    axis = integer(node, 4) if node.num_operands > 4 else -1
    rank = len(shape_of(node.type))
    return {k if k < axis % rank else k + 1: s for k, s in a.of(node, 0).items()}


def _along(dim: int, tensors: tuple[int, ...]) -> Callable[[Analysis, Node], Label]:
    """Picks along axis operand ``dim``; the others of the ``tensors`` agree, and so does the result."""

    def rule(a: Analysis, node: Node) -> Label:
        at = integer(node, dim) % len(shape_of(node.operand(0).type))
        axes: Axes = NONE
        for i in tensors:
            axes = joined(axes, a.of(node, i))
        if at in axes:
            raise Stuck("it picks samples of the batch by their index")
        for i in tensors:
            a.demand(node, i, axes)
        return axes

    return rule


def _top_k(a: Analysis, node: Node) -> Label:
    axes = a.of(node, 0)
    if len(shape_of(node.operand(0).type)) - 1 in axes:
        raise Stuck("it picks the largest samples of the batch")
    return (axes, axes)


_REDUCTIONS = named(Family.TOTAL, Family.MEAN, Family.EXTREME, Family.MULTIPLIED, Family.LOGICAL)
_MATMULS = named(Family.MATMUL)
PRODUCT_RULES: dict[str, Callable[[Analysis, Node], Label]] = {
    **dict.fromkeys(_MATMULS, _matmul),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(_NORMALISED, _layer_norm),
    "Dense": _dense,
    "Einsum": _einsum,
    "EinsumGrad": _einsum,
    "Gather": _gather,
    "EmbeddingLookup": _gather,
    "UnsortedSegmentSum": _segment_sum,
    "OneHot": _one_hot,
    "GatherD": _along(1, (0, 2)),
    "GatherDGradV2": _along(1, (0, 2, 3)),
    "Scatter": _along(1, (0, 2, 3)),
    "InplaceScatterSrc": _along(1, (0, 2, 3)),
    **dict.fromkeys(_PLACES - _ONE_PLACE, _place_and_value),
    "TopK": _top_k,
}
PRODUCT_GROWS: dict[str, Callable[[Analysis, Node, Axes], None]] = {
    **dict.fromkeys(_MATMULS, _grow_matmul),
    **dict.fromkeys(_REDUCTIONS, _grow_reduction),
}
