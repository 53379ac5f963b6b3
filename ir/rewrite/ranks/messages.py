"""What ranks send each other of the weights that they deal out: tensors in a row, joined, cut and put together."""

from __future__ import annotations

from collections.abc import Sequence

from ...builders.cast import cast
from ...core.attributes import TensorValue
from ...core.data import ZeroData
from ...core.graph import Graph, Node, Value, tensor_type
from ...core.primitives import CPU
from ...core.types import DType, TensorType
from .collectives import WORLD, all_gather

SCOPE = "ownership"
BUCKET = 4 * 2**20
"""Weights of fewer bytes travel together, in buckets of at most that many."""
MESSAGE, MESSAGES = 2**19, 128
"""On CPU weights travel in messages of that many bytes, and larger ones where these were more than so many a cycle:
each connection of MindSpore's keeps a buffer for the largest message that it ever took, two for each other rank."""


def limit_of(nbytes: int, group: str) -> int:
    """The bytes of a message where so many travel in ``group``; 0 for any."""
    return max(MESSAGE, nbytes // MESSAGES) if group == WORLD[CPU] else 0


def messages(graph: Graph, value: Value, limit: int) -> list[Value]:
    """``value`` in flat parts of at most ``limit`` bytes (0: any)."""
    type_ = tensor_type(value)
    if not limit or type_.nbytes <= limit:
        return [value]
    count = limit // type_.dtype.itemsize
    bounds = range(0, type_.size, count)
    return [cut_out(graph, value, slice(begin, min(begin + count, type_.size))) for begin in bounds]


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
    rest = TensorType(type_.dtype, (length - type_.size,))
    return joined(graph, [row, graph.constant(TensorValue(rest, ZeroData(rest.nbytes)))])


def cut_out(graph: Graph, value: Value, piece: slice) -> Value:
    """Some elements of a value, of all in a row."""
    type_ = TensorType(tensor_type(value).dtype, (piece.stop - piece.start,))
    if value.is_zero:
        return graph.constant(TensorValue(type_, ZeroData(type_.nbytes)))
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


def gathered(
    graph: Graph, piece: Value, whole: TensorType, length: int, ranks: int, group: str, limit: int
) -> tuple[Value, list[Node]]:
    """A value of type ``whole`` of the pieces that the ranks have, each but the last of ``length`` elements, in
    messages of at most ``limit`` bytes, and the collectives that bring it."""
    sent = [
        all_gather(graph, message, group, ranks, scope=SCOPE)
        for message in messages(graph, in_a_row(graph, widened(graph, piece), length), limit)
    ]
    rows: list[Value] = [reshaped(graph, node, (ranks, tensor_type(node).size // ranks)) for node in sent]
    found = rows[0] if len(rows) == 1 else _concatenated(graph, rows, (ranks, length), axis=1)
    elements = cut_out(graph, found, slice(0, whole.size))
    return cast(graph, reshaped(graph, elements, whole.shape), whole.dtype, scope=SCOPE), sent


def _concatenated(graph: Graph, values: Sequence[Value], shape: tuple[int, ...], axis: int) -> Value:
    packed = graph.create("MakeTuple", values, scope=SCOPE)
    type_ = TensorType(tensor_type(values[0]).dtype, shape)
    return graph.create("Concat", [packed, graph.constant(axis)], type_, scope=SCOPE)
