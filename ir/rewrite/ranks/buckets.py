"""Buckets: several tensors reduced over ranks in one collective, since a small one costs what starting it costs.

The tensors are flattened and joined, reduced, and taken apart again. The nodes that hold the results carry marks, so
that the whole can be taken out again: see :func:`source_of`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...builders.packing import join, part
from ...core.graph import Graph, Node, Value, tensor_type
from ...core.names import STAGE
from ...core.types import DType
from ..stages import mark
from .collectives import all_reduce

SLOT = "bucket_slot"
"""Mark of a result that came through a bucket: its place in it."""
ALL_REDUCE = "all-reduce"


@dataclass(frozen=True, slots=True)
class Item:
    """One tensor to reduce: ``key`` is its place in the caller's list, ``group`` its bucket where the user gave one."""

    key: int
    dtype: DType
    nbytes: int
    group: int | None = None


def plan_buckets(items: Iterable[Item], limit: int) -> list[list[int]]:
    """The keys of each bucket, in the order in which they are full: those of one group and element type together, the
    others in order up to ``limit`` bytes a bucket. What reaches the limit by itself stands alone."""
    done: list[list[int]] = []
    grouped: dict[tuple[int, DType], list[int]] = {}
    open_: dict[DType, tuple[list[int], int]] = {}
    for item in items:
        if item.group is not None:
            bucket = grouped.get((item.group, item.dtype))
            if bucket is None:
                bucket = grouped[item.group, item.dtype] = []
                done.append(bucket)
            bucket.append(item.key)
        elif item.nbytes >= limit:
            done.append([item.key])
        else:
            keys, size = open_.get(item.dtype, ([], 0))
            if not keys or size + item.nbytes > limit:
                keys, size = [], 0
                done.append(keys)
            keys.append(item.key)
            open_[item.dtype] = (keys, size + item.nbytes)
    return done


def sum_over_ranks(graph: Graph, values: Sequence[Value], group: str, *, scope: str) -> list[Node]:
    """The sums over the ranks of ``group`` of values of one element type and fixed shapes, by one collective."""
    if len(values) == 1:
        total = all_reduce(graph, values[0], group, scope=scope)
        mark(total, {STAGE: ALL_REDUCE})
        return [total]
    total = all_reduce(graph, join(graph, values, scope=scope), group, scope=scope)
    results: list[Node] = []
    begin = 0
    for slot, type_ in enumerate(map(tensor_type, values)):
        result = part(graph, total, begin, type_.shape, scope=scope)
        mark(result, {STAGE: ALL_REDUCE, SLOT: slot})
        results.append(result)
        begin += type_.size
    return results


def source_of(result: Node) -> Value:
    """This rank's summand of a result of :func:`sum_over_ranks`."""
    slot = result.marks.get(SLOT)
    if slot is None:
        return result.operand(0)
    part = _node(result.operand(0))
    joined = _node(_node(part.operand(0)).operand(0))
    return _node(_node(joined.operand(0)).operand(int(slot))).operand(0)


def collective_of(result: Node) -> Node:
    """The collective that a result of :func:`sum_over_ranks` comes from."""
    slot = result.marks.get(SLOT)
    return result if slot is None else _node(_node(result.operand(0)).operand(0))


def _node(value: Value) -> Node:
    assert isinstance(value, Node)
    return value
