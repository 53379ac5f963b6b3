"""The rules by which primitives move the axis of the samples (``ir/core/primitives/samples.py`` says which has which).

Most are links: two axes, of an operand or of the result, that hold the batch together. The others say what the rest of
a node holds if one operand, or the result, does. Stuck where the batch cannot be followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from ...core.attributes import Number, TensorValue
from ...core.data import to_numpy
from ...core.graph import Constant, Node, State
from ...core.paddings import widths_by_axis
from ...core.predicates import is_effect
from ...core.primitives import facts
from ...core.types import TensorType, TupleType, Type
from .spans import Axes, Span, Stuck, reshaped

Path: TypeAlias = tuple[int, ...]
Place: TypeAlias = tuple[int, Path]
"""An operand by number, or -1 for the result; and where in a tuple."""
Held: TypeAlias = Mapping[Place, Axes]
Links: TypeAlias = list[tuple[Place, int, Place, int]]
"""(place, axis, place, axis): two axes that hold the same."""
RESULT = -1
DATA, OTHER, WHOLE = (0, ()), (1, ()), (RESULT, ())


def carry(node: Node, place: Place, axes: Axes) -> Held:
    """What the other operands and results of a node hold, if the one at ``place`` holds the batch on ``axes``."""
    word = rule_of(node).partition(" ")[0]
    links, why = ((_fixed, f"it cannot have the batch on axis {min(axes)}") if word.isdigit() or word == "."
                  else _LINKS.get(word, (None, "")))  # fmt: skip
    if links is None and word not in _RULES:
        raise Stuck(_unknown(node))
    if links is None:
        return _RULES[word](node, place, axes)
    found: dict[Place, dict[int, Span]] = {}
    left = set(axes)
    for a, i, b, j in links(node):
        for (here, k), (there, n) in (((a, i), (b, j)), ((b, j), (a, i))):
            if here == place and k in axes:
                found.setdefault(there, {})[n] = axes[k]
                left.discard(k)
    if left and (why or place[0] == RESULT):
        raise Stuck(why or "it has nothing that could grow with the batch")
    return found


def rule_of(node: Node) -> str:
    return facts(node.op).samples


def shape_of(type_: Type) -> tuple[int, ...]:
    return type_.shape if isinstance(type_, TensorType) else ()


def shape_at(node: Node, place: Place = DATA) -> tuple[int, ...]:
    type_ = node.type if place[0] == RESULT else node.operand(place[0]).type
    for k in place[1]:
        type_ = type_.elements[k] if isinstance(type_, TupleType) else type_
    return shape_of(type_)


def rank_of(node: Node, place: Place = DATA) -> int:
    return len(shape_at(node, place))


def tensors(node: Node, positions: Iterable[int] = (RESULT,)) -> Iterator[Place]:
    """The tensors with axes among these operands (or the result), those in a tuple included."""
    for i in positions:
        type_ = node.type if i == RESULT else node.operand(i).type
        for place in [(i, (k,)) for k in range(len(type_.elements))] if isinstance(type_, TupleType) else [(i, ())]:
            if shape_at(node, place):
                yield place


def integers(node: Node, i: int) -> tuple[int, ...]:
    """Operand ``i``: an int, a tuple or a tensor of them, or none at all. Stuck where it is computed."""
    operand = node.operand(i)
    value = operand.value if isinstance(operand, Constant) else False
    if isinstance(value, TensorValue):
        return tuple(map(int, to_numpy(value.type, value.data).ravel()))
    value = value.value if isinstance(value, Number) else () if value is None else value
    found = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if any(not isinstance(v, int) or isinstance(v, bool) for v in found):
        raise Stuck(f"its operand {i} is computed, and decides about axes")
    return found


def integer(node: Node, i: int) -> int:
    return integers(node, i)[0]


def _unknown(node: Node) -> str:
    if is_effect(node):
        written = [v.name for v in node.operands if isinstance(v, State)]
        if written:
            return f"it writes state '{written[0]}', which does not grow, with a value that holds the batch"
    return f"there is no rule for what {node.op.name} does to the batch"


# -- links -------------------------------------------------------------------------------------------------------------


def _same(places: Iterable[Place], axes: Iterable[int]) -> Links:
    first, *others = places
    return [(first, k, other, k) for k in axes for other in others]


def _fixed(node: Node) -> Links:
    """The batch on one axis of some operands and results, as the rule lists them."""
    left, _, right = rule_of(node).partition(">")
    places: list[tuple[Place, str]] = [((i, ()), t) for i, t in enumerate(left.split())]
    elements: list[Place] = [(RESULT, (k,)) for k in range(9)] if isinstance(node.type, TupleType) else [WHOLE]
    places += zip(elements, right.split(), strict=False)
    held = [(p, int(t)) for p, t in places if t.isdigit() and p[0] < node.num_operands and int(t) < rank_of(node, p)]
    (first, at), *others = held
    extent = shape_at(node, first)[at]
    return [(first, at, p, k) for p, k in [(first, at), *others] if shape_at(node, p)[k] == extent]


def _matmul(node: Node) -> Links:
    a, b, c = (rank_of(node, p) for p in (DATA, OTHER, WHOLE))
    if min(a, b) < 2:
        raise Stuck("it is a product with a vector")
    given = [
        bool(node.op.attributes.get(name) or (node.num_operands > i and node.operand(i).literal is True))
        for name, i in (("transpose_a", 2), ("transpose_b", 3))
    ]
    row, inner = (a - 1, a - 2) if given[0] else (a - 2, a - 1)
    other, column = (b - 1, b - 2) if given[1] else (b - 2, b - 1)
    leading = [(p, k, WHOLE, k + c - n) for p, n in ((DATA, a), (OTHER, b)) for k in range(n - 2)]
    ones = [link for link in leading if shape_at(node, link[0])[link[1]] == shape_at(node, WHOLE)[link[3]]]
    return [(DATA, row, WHOLE, c - 2), (OTHER, column, WHOLE, c - 1), (DATA, inner, OTHER, other), *ones]


def _dense(node: Node) -> Links:
    return _same([DATA, WHOLE], range(rank_of(node, WHOLE) - 1))


def reduced_axes(node: Node) -> tuple[set[int], bool]:
    """The axes that a reduction takes together, and whether they stay as ones."""
    rank, name = rank_of(node), node.op.name
    if name in ("Argmax", "Argmin"):
        return {integer(node, 1) % rank}, False
    if name in ("Max", "Min") or node.num_operands < 2 or not rank:
        return set(range(rank)), False
    keep = node.num_operands > 2 and node.operand(2).literal is True
    return {k % rank for k in integers(node, 1)} or set(range(rank)), keep


def _reduce(node: Node) -> Links:
    gone, keep = reduced_axes(node)
    left = [k for k in range(rank_of(node)) if keep or k not in gone]
    return [(DATA, k, p, j) for p in tensors(node) for j, k in enumerate(left) if k not in gone]


def _norm(node: Node) -> Links:
    name, rank = node.op.name, rank_of(node)
    at = {"LayerNorm": 3, "LayerNormGrad": 5, "LayerNormExt": 1, "LayerNormGradExt": 2}[name]
    begin = rank - len(integers(node, at)) if name.endswith("Ext") else integer(node, at) % rank
    data = (0, 1, 3, 4) if name == "LayerNormGradExt" else (0, 1, 2, 3) if "Grad" in name else (0,)
    results = (0,) if "Grad" in name else (0, 1, 2)
    return _same([*((i, ()) for i in data), *((RESULT, (k,)) for k in results)], range(begin))


def _einsum(node: Node) -> Links:
    """Axes of one letter are one axis."""
    equation = str(node.op.attributes.get("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    if not arrow or "." in equation:
        raise Stuck(f"its equation '{equation}' does not name all axes")
    places: dict[Place, str] = {(0, (k,)): term for k, term in enumerate(left.split(","))}
    if node.op.name == "EinsumGrad":
        places.update({(RESULT, path): term for (_, path), term in places.items()})
        places[OTHER] = right
    else:
        places[WHOLE] = right
    at: dict[str, list[tuple[Place, int]]] = {}
    for place, term in places.items():
        for k, letter in enumerate(term):
            at.setdefault(letter, []).append((place, k))
    return [(*first, *other) for first, *others in at.values() for other in [first, *others]]


def _gather(node: Node) -> Links:
    rank, index = rank_of(node), rank_of(node, OTHER)
    axis = integer(node, 2) % rank if node.op.name == "Gather" else 0
    if node.op.name == "Gather" and node.num_operands > 3 and integer(node, 3) != 0:
        raise Stuck("it looks up with batch_dims")
    table: Links = [(DATA, k, WHOLE, k if k < axis else k + index - 1) for k in range(rank) if k != axis]
    return table + [(OTHER, k, WHOLE, k + axis) for k in range(index)]


def _segments(node: Node) -> Links:
    rank, index = rank_of(node), rank_of(node, OTHER)
    return _same([DATA, OTHER], range(index)) + [(DATA, k, WHOLE, k - index + 1) for k in range(index, rank)]


def _scatter(node: Node) -> Links:
    """Zeros, to which updates are added where indices say: those may number samples, or what samples share."""
    *places, depth = shape_at(node)
    n = len(places)
    return _same([DATA, OTHER], range(n)) + [(OTHER, k, WHOLE, k - n + depth) for k in range(n, rank_of(node, OTHER))]


def _hot(node: Node) -> Links:
    rank = rank_of(node, WHOLE)
    axis = (integer(node, 4) if node.num_operands > 4 else -1) % rank
    return [(DATA, k, WHOLE, k + (k >= axis)) for k in range(rank - 1)]


def _along(node: Node) -> Links:
    """Picks along the axis that operand 1 names; the data, the indices and the result agree about the others."""
    at = integer(node, 1) % rank_of(node)
    places: list[Place] = [(int(i), ()) for i in rule_of(node).split()[1:]]
    return _same([*places, WHOLE], [k for k in range(rank_of(node)) if k != at])


def _reverse(node: Node) -> Links:
    """Each sample by its own length, which stands in operand 1."""
    seq, batch = (node.op.attributes.get(k, 0) if node.num_operands < 4 else integer(node, i)
                  for k, i in (("seq_dim", 2), ("batch_dim", 3)))  # fmt: skip
    return [*_same([DATA, WHOLE], [k for k in range(rank_of(node)) if k != seq]), (OTHER, 0, DATA, batch)]


def _top(node: Node) -> Links:
    return _same([DATA, (RESULT, (0,)), (RESULT, (1,))], range(rank_of(node) - 1))


def _move(node: Node) -> Links:
    shape, rank = shape_at(node), rank_of(node)
    left = list(range(rank))
    if node.op.name == "Transpose":
        left = [k % rank for k in integers(node, 1)]
    elif node.op.name == "ExpandDims":
        left.insert(integer(node, 1) % (rank + 1), -1)
    else:
        gone = integers(node, 1) if node.num_operands > 1 else node.op.attributes.get("axis", ())
        named = {k % rank for k in ((gone,) if isinstance(gone, int) else gone)}
        left = [k for k in left if shape[k] != 1 or (named and k not in named)]
    return [(DATA, k, WHOLE, j) for j, k in enumerate(left) if k >= 0]


def _axis(node: Node, rank: int) -> int:
    at = node.op.attributes.get("axis")
    if node.op.name == "Split" and node.num_operands > 1:
        at = integer(node, 1)  # behind it stands the number of parts
    return (at if isinstance(at, int) else integer(node, node.num_operands - 1)) % rank


def _stack(node: Node) -> Links:
    at = _axis(node, rank_of(node, WHOLE))
    return [(p, k, WHOLE, k + (k >= at)) for p in tensors(node, (0,)) for k in range(rank_of(node, p))]


def _split(node: Node) -> Links:
    """Unstack drops the axis that it takes apart, the splits keep it."""
    at, drop = _axis(node, rank_of(node)), node.op.name == "Unstack"
    return [(DATA, k, p, k - (drop and k > at)) for p in tensors(node) for k in range(rank_of(node)) if k != at]


def sliced(node: Node) -> tuple[Links, set[int]]:
    """The axes that a slice, or its gradient, takes whole; and those of the big tensor that end at a number there."""
    name = node.op.name
    grad = name.endswith("Grad")
    big, small, first = (WHOLE, DATA, 2) if grad else (DATA, WHOLE, 1)
    shape = shape_at(node, big)
    if name.startswith("Slice"):
        begin, size = integers(node, first), integers(node, first + 1)
        whole = [k for k, d in enumerate(shape) if begin[k] == 0 and size[k] in (d, -1)]
        return _same([big, small, *([OTHER] if grad else [])], whole), set()
    begin, end, strides = (integers(node, first + k) for k in range(3))
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    given = [node.op.attributes.get(k) for k in names]
    masks = [v if isinstance(v, int) else integer(node, first + 3 + i) for i, v in enumerate(given)]
    if (masks[2] | masks[3]) & ((1 << len(begin)) - 1):
        raise Stuck("it slices with an ellipsis or a new axis")
    links: Links = []
    ended, j = set[int](), 0
    for k, d in enumerate(shape):
        inside = k < len(begin)
        if inside and masks[4] >> k & 1:
            continue
        starts = not inside or ((masks[0] >> k & 1 or begin[k] == 0) and strides[k] == 1)
        if starts and (not inside or masks[1] >> k & 1 or end[k] == d):
            links.append((big, k, small, j))
            if inside and not masks[1] >> k & 1:
                ended.add(k)
        j += 1
    return links, ended


def _pad(node: Node) -> Links:
    """All axes but those that are made longer, or along which elements move."""
    name, rank = node.op.name, rank_of(node)
    if name in ("Roll", "ReverseV2"):
        touched = {k % rank for k in integers(node, 2 if name == "Roll" else 1)}
    else:
        given = () if name == "Pad" else integers(node, 1)
        pairs = node.op.attributes.get("paddings", ()) if name == "Pad" else zip(given[::2], given[1::2], strict=False)
        widths = widths_by_axis(node, given, rank) if name.startswith("PadV3") else pairs
        touched = {k for k, ends in enumerate(widths) if any(ends)}
    return _same([DATA, WHOLE], [k for k in range(rank) if k not in touched])


# -- what is more than links -------------------------------------------------------------------------------------------


def _elementwise(node: Node, place: Place, axes: Axes) -> Held:
    """By numpy's broadcasting; where a kernel reduces its result to a number, the operands agree all the same."""
    results = list(tensors(node))
    rank = max((rank_of(node, p) for p in results), default=0)
    others: list[Place] = []
    if place[0] == RESULT or rank < rank_of(node, place):  # a sum has many operands: its result alone leads to all
        others = list(tensors(node, range(node.num_operands)))
        rank = max(rank_of(node, p) for p in others or [place])
    shift = rank - rank_of(node, place)
    found: dict[Place, Axes] = {}
    for p in [*others, *(p for p in results if rank_of(node, p) == rank)]:
        shape = shape_at(node, p)
        at = rank - len(shape)
        moved = {k + shift - at: s for k, s in axes.items() if k + shift >= at}
        if moved := {k: s for k, s in moved.items() if p[0] == RESULT or shape[k] != 1}:
            found[p] = moved
    return found


def _picked(node: Node, place: Place, axes: Axes) -> Held:
    """What is selected of all elements stands in one row, which belongs to the samples."""
    if place[0] == RESULT:
        return {}
    other: Place = (1 - place[0], ())
    return {WHOLE: {0: Span()}, **({other: axes} if shape_at(node) == shape_at(node, OTHER) else {})}


def _rows(node: Node, place: Place, axes: Axes) -> Held:
    """Indices, of any shape, and updates that begin with that shape."""
    if set(axes) != {0}:
        raise Stuck("it writes rows of a state that hold more than one axis of the batch")
    return {}


def _reshape(node: Node, place: Place, axes: Axes) -> Held:
    other = WHOLE if place[0] != RESULT else DATA
    return {other: reshaped(shape_at(node, place), axes, shape_at(node, other))}


def _tile(node: Node, place: Place, axes: Axes) -> Held:
    """Repeated along the batch, the copies stand outside of it; BroadcastTo repeats what is one long."""
    own, rank = shape_at(node), rank_of(node, WHOLE)
    given = integers(node, 1) if node.op.name == "Tile" else ()
    times, shift = (1,) * (rank - len(given)) + given, rank - len(own)
    if place[0] != RESULT:
        return {WHOLE: {k + shift: Span(s.outer * times[k + shift], s.inner) for k, s in axes.items()}}
    held = {k - shift: s for k, s in axes.items() if k >= shift and own[k - shift] != 1}
    if any(s.outer % times[k + shift] for k, s in held.items()):
        raise Stuck("it repeats what would have to grow with the batch")
    return {DATA: {k: Span(s.outer // times[k + shift], s.inner) for k, s in held.items()}}


def _concat(node: Node, place: Place, axes: Axes) -> Held:
    """Along an axis that holds the batch all parts have to hold it alike."""
    at, parts = _axis(node, rank_of(node, WHOLE)), list(tensors(node, (0,)))
    if at in axes:
        span, n, result = axes[at], len(parts), place[0] == RESULT
        if span.outer != (n if result else 1) or len({shape_at(node, p) for p in parts}) > 1:
            raise Stuck("it joins samples of the batch with something else")
        axes = {**axes, at: Span(1 if result else n, span.inner)}
    return {WHOLE: axes} if place[0] != RESULT else dict.fromkeys(parts, axes)


_LINKS: Mapping[str, tuple[Callable[[Node], Links], str]] = {
    "matmul": (_matmul, ""),
    "dense": (_dense, "it sums over the batch, or its weight holds it"),
    "einsum": (_einsum, ""),
    "norm": (_norm, "it normalises over the batch"),
    "reduce": (_reduce, ""),
    "gather": (_gather, "it picks samples of the batch by their index"),
    "along": (_along, "it picks samples of the batch by their index"),
    "reverse": (_reverse, "it turns the batch around"),
    "top": (_top, "it picks the largest samples of the batch"),
    "hot": (_hot, ""),
    "segments": (_segments, ""),
    "scatter": (_scatter, "its indices may number the samples"),
    "move": (_move, "it drops or makes the axis that would hold the batch"),
    "stack": (_stack, ""),
    "split": (_split, "it takes the batch apart"),
    "slice": (lambda node: sliced(node)[0], "it takes, or is the gradient of, a part of the batch"),
    "pad": (_pad, "it pads the batch, or moves samples to other places"),
}
"""The links of a rule, and why an axis is stuck that none of them leads from; "" where it may just end there."""
_RULES: Mapping[str, Callable[[Node, Place, Axes], Held]] = {
    "=": _elementwise, "picked": _picked, "rows": _rows, "reshape": _reshape, "tile": _tile, "concat": _concat,
    "all": lambda node, place, axes: {}, "fill": lambda node, place, axes: {},
}  # fmt: skip
