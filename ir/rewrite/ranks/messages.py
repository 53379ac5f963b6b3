"""What ranks send each other of the weights that they deal out: tensors in a row, joined, cut and put together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from ...builders.cast import cast
from ...core.attributes import TensorValue
from ...core.data import ZeroData
from ...core.graph import Graph, Node, Value, tensor_type
from ...core.types import DType, TensorType
from .collectives import all_gather

SCOPE = "ownership"
BUCKET = 4 * 2**20
"""Weights of fewer bytes travel together, in buckets of at most that many."""
MESSAGE, MESSAGES = 2**20, 128
"""On CPU a rank gives so many bytes in a message, or more where these were more than so many a cycle. Each connection
of MindSpore's keeps a buffer for the largest message that it ever took, and the nodes of a message (one for each rank
and three more) cost 31 kB each, so much smaller and much larger ones both take memory."""
Row = Sequence[tuple[str, slice]]
"""What a rank gives to all, one behind the other: a weight, and which of its elements, in a row."""


def length_of(row: Row) -> int:
    return sum(place.stop - place.start for _, place in row)


def limit_of(rows: Iterable[Row]) -> int:
    """The bytes that a rank gives in a message where they give these rows."""
    return max(MESSAGE, max(map(length_of, rows)) * DType.FLOAT32.itemsize // MESSAGES)


def widened(graph: Graph, value: Value) -> Value:
    """What every target sends: float32, which holds each number of 16 bits."""
    return cast(graph, value, DType.FLOAT32, scope=SCOPE)


def reshaped(graph: Graph, value: Value, shape: tuple[int, ...]) -> Value:
    type_ = TensorType(tensor_type(value).dtype, shape)
    if type_ == value.type:
        return value
    return graph.create("Reshape", [value, graph.constant(shape)], type_, scope=SCOPE, sources=[value])


def in_a_row(graph: Graph, value: Value, length: int = 0) -> Value:
    """All elements of a value, with zeros behind them up to ``length``."""
    type_ = tensor_type(value)
    row = reshaped(graph, value, (type_.size,))
    if length <= type_.size:
        return row
    return joined(graph, [row, _zeros(graph, length - type_.size, type_.dtype)])


def _zeros(graph: Graph, length: int, dtype: DType = DType.FLOAT32) -> Value:
    type_ = TensorType(dtype, (length,))
    return graph.constant(TensorValue(type_, ZeroData(type_.nbytes)))


def cut_out(graph: Graph, value: Value, piece: slice) -> Value:
    """Some elements of a value, of all in a row, as far as there are any."""
    whole = tensor_type(value)
    type_ = TensorType(whole.dtype, (min(piece.stop, whole.size) - piece.start,))
    if value.is_zero:
        return _zeros(graph, type_.size, type_.dtype)
    row = in_a_row(graph, value)
    if row.type == type_:
        return row
    bounds = [graph.constant((piece.start,)), graph.constant((type_.size,))]
    return graph.create("Slice", [row, *bounds], type_, scope=SCOPE, sources=[value])


def joined(graph: Graph, values: Sequence[Value]) -> Value:
    """All elements of several values in a row; one value by itself as it is."""
    if len(values) == 1:
        return values[0]
    rows = [in_a_row(graph, value) for value in values]
    return _concatenated(graph, rows, (sum(tensor_type(row).size for row in rows),), axis=0)


def parts_of(graph: Graph, row: Value, like: Sequence[Value]) -> list[Value]:
    """What :func:`joined` has put together of values ``like`` these."""
    found: list[Value] = []
    begin = 0
    for type_ in map(tensor_type, like):
        part = cut_out(graph, row, slice(begin, begin + type_.size)) if len(like) > 1 else row
        found.append(reshaped(graph, part, type_.shape))
        begin += type_.size
    return found


@dataclass(frozen=True, slots=True)
class _Fragment:
    """What a rank gives of a weight in one round: elements ``begin`` to ``end`` of it, which stand at ``at`` in the
    message; ``own``: where they begin in the value that the rank has."""

    weight: str
    begin: int
    end: int
    at: int
    own: int


def _fragments(row: Row, width: int) -> dict[int, list[_Fragment]]:
    """What a rank gives in each round, where every message has ``width`` elements."""
    found: dict[int, list[_Fragment]] = {}
    at = 0
    for weight, place in row:
        begin = place.start
        while begin < place.stop:
            end = min(place.stop, begin + width - at % width)
            fragment = _Fragment(weight, begin, end, at % width, begin - place.start)
            found.setdefault(at // width, []).append(fragment)
            at, begin = at + end - begin, end
    return found


def in_rounds(
    graph: Graph,
    rows: Sequence[Row],
    own: Mapping[str, Value],
    rank: int,
    group: str,
    known: Collection[str] = (),
) -> Iterator[tuple[Node, dict[str, Value]]]:
    """Brings all ranks the ``rows`` that each of them gives, in messages of a size (:func:`limit_of`): every rank
    gives its next elements, and anything behind its last. ``own``: the float32 values that ``rank`` has, by weight;
    one at least. Yields each collective, and the weights that are whole by then, in a row, but for those that are
    ``known`` here. Something must be taken of each collective, or it goes."""
    flat = {weight: in_a_row(graph, value) for weight, value in own.items()}
    spare = next(iter(flat.values()))  # no constant: what computes it would not wait for the message before it
    lengths = list(map(length_of, rows))
    width = limit_of(rows) // DType.FLOAT32.itemsize
    given = [_fragments(row, width) for row in rows]
    missing: dict[str, int] = {}
    for weight, place in (item for row in rows for item in row if item[0] not in known):
        missing[weight] = missing.get(weight, 0) + place.stop - place.start
    parts: dict[str, list[tuple[int, Value]]] = {weight: [] for weight in missing}
    for i, begin in enumerate(range(0, max(lengths), width)):
        length = min(width, max(lengths) - begin)
        mine = [cut_out(graph, flat[f.weight], slice(f.own, f.own + f.end - f.begin)) for f in given[rank].get(i, ())]
        message = in_a_row(graph, joined(graph, mine or [cut_out(graph, spare, slice(0, length))]), length)
        sent = all_gather(graph, message, group, len(rows), scope=SCOPE)
        whole: dict[str, Value] = {}
        received = [(r * length, f) for r, row in enumerate(given) for f in row.get(i, ()) if f.weight in missing]
        for start, f in received:
            place = slice(start + f.at, start + f.at + f.end - f.begin)
            parts[f.weight].append((f.begin, cut_out(graph, sent, place)))
            missing[f.weight] -= f.end - f.begin
            if not missing[f.weight]:
                whole[f.weight] = joined(graph, [part for _, part in sorted(parts.pop(f.weight), key=itemgetter(0))])
        yield sent, whole


def gathered(graph: Graph, piece: Value, elements: int, length: int, ranks: int, group: str) -> tuple[Node, Value]:
    """The collective that brings all ranks a value of so many ``elements``, of which each has a piece of ``length``
    (the last one less), and the value, in a row."""
    sent = all_gather(graph, in_a_row(graph, widened(graph, piece), length), group, ranks, scope=SCOPE)
    return sent, cut_out(graph, sent, slice(0, elements))


def _concatenated(graph: Graph, values: Sequence[Value], shape: tuple[int, ...], axis: int) -> Value:
    packed = graph.create("MakeTuple", values, scope=SCOPE)
    type_ = TensorType(tensor_type(values[0]).dtype, shape)
    return graph.create("Concat", [packed, graph.constant(axis)], type_, scope=SCOPE)
