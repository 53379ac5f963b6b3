"""Averages of weights, moved in the memory of their states."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np

BLOCK = 2**16
"""Elements that are moved at once: what is computed of them stays in the cache of a core."""
SHARED = 2**20
"""Elements from which on a second thread takes half of them: one thread does not use up what memory gives."""

_Piece = tuple[Any, Any, Any]
"""A part of an average, that of its weight, and room for a product."""


class Moves:
    """Moves of averages that happen together, each given as the float32 arrays of an average and its weight, of one
    shape. All that is the same each time is made once: a small average takes the calls of its three operations.
    ``addresses``: what says where each array's memory should be, in the order of the arrays."""

    def __init__(self, pairs: Sequence[tuple[Any, Any]], addresses: Sequence[Callable[[], int]] = ()) -> None:
        flat = [(average.reshape(-1), weight.reshape(-1)) for average, weight in pairs]
        sizes = [average.size for average, _ in flat]
        rooms = [np.empty(min(BLOCK, max(sizes)), np.float32) for _ in range(_threads(sum(sizes)))]
        starts = [(pair, start) for pair in flat for start in range(0, pair[0].size, BLOCK)]
        before = accumulate((min(BLOCK, average.size - start) for (average, _), start in starts), initial=0)
        self._shares: list[list[_Piece]] = [[] for _ in rooms]
        """The pieces of each thread."""
        for ((average, weight), start), done in zip(starts, before, strict=False):
            one, other = average[start : start + BLOCK], weight[start : start + BLOCK]
            share = len(rooms) * done // sum(sizes)
            self._shares[share].append((one, other, rooms[share][: one.size]))
        self._addresses = addresses
        self._begins = [array.ctypes.data for pair in flat for array in pair]

    def stand(self) -> bool:
        """Whether the arrays still are where they should be."""
        return [address() for address in self._addresses] == self._begins

    def run(self, kept: Any, taken: Any) -> None:
        """Each average becomes itself · ``kept`` + its weight · ``taken`` in its place, each step rounded as
        MindSpore's kernels round it. (Below 1.2e-38 some of MindSpore's threads round to zero and others do not; here
        nothing does.) Memory is passed three times: both are read, and one is written. The caller turns the warnings of
        numpy off."""
        own, *others = self._shares
        waiting = [_pool().submit(_quietly, share, kept, taken) for share in others]
        _move(own, kept, taken)
        for future in waiting:
            future.result()


def _move(pieces: Sequence[_Piece], kept: Any, taken: Any) -> None:
    multiply, add = np.multiply, np.add
    for average, weight, product in pieces:
        multiply(weight, taken, product)
        multiply(average, kept, average)
        add(average, product, average)


def _quietly(pieces: Sequence[_Piece], kept: Any, taken: Any) -> None:
    with np.errstate(all="ignore"):  # each thread has warnings of its own
        _move(pieces, kept, taken)


def _threads(elements: int) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 2 if elements >= SHARED and cores > 1 else 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "averages")
