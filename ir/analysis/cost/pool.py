"""MindSpore's memory pool, simulated: how far into its block of addresses a graph reaches.

The pool gives each request the smallest free piece that is large enough, splits it, and joins pieces with free
neighbours when they come back (best fit; ``mem_dynamic_allocator.cc``). Pieces that are too small for what comes next
stay unused, so that more addresses are touched than bytes are ever in use at once; and what was touched stays resident.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from ...core.graph import Graph
from .memory import allocations

ALIGNMENT = 512


def reach(graph: Graph) -> int:
    """The highest address, in bytes from the start of the pool, that a run of the graph touches. Linear in nodes, but
    for a logarithm of the number of free pieces."""
    pool = _Pool()
    ending: dict[int, list[tuple[int, int]]] = {}
    for at, parts in enumerate(allocations(graph)):
        for size, end in parts:
            if size:
                ending.setdefault(end, []).append(pool.take(size))
        for start, size in ending.pop(at, ()):
            pool.give(start, size)
    return pool.top


class _Pool:
    """Free pieces below ``top``, by size and by both ends; everything above it is free."""

    def __init__(self) -> None:
        self.top = 0
        self._by_size: list[tuple[int, int]] = []
        self._starting: dict[int, int] = {}
        self._ending: dict[int, int] = {}

    def take(self, size: int) -> tuple[int, int]:
        """(start, size) of what is given for a request."""
        size = -(-size // ALIGNMENT) * ALIGNMENT
        k = bisect_left(self._by_size, (size, 0))
        if k < len(self._by_size):
            whole, start = self._by_size[k]
            self._remove(start, whole)
            if whole > size:
                self._add(start + size, whole - size)
            return start, size
        start = self.top
        if start in self._ending:  # the last piece is free: it grows
            whole = self._ending[start]
            start -= whole
            self._remove(start, whole)
        self.top = start + size
        return start, size

    def give(self, start: int, size: int) -> None:
        before = self._ending.get(start)
        if before is not None:
            self._remove(start - before, before)
            start, size = start - before, size + before
        after = self._starting.get(start + size)
        if after is not None:
            self._remove(start + size, after)
            size += after
        self._add(start, size)

    def _add(self, start: int, size: int) -> None:
        insort(self._by_size, (size, start))
        self._starting[start] = size
        self._ending[start + size] = size

    def _remove(self, start: int, size: int) -> None:
        del self._by_size[bisect_left(self._by_size, (size, start))]
        del self._starting[start], self._ending[start + size]
