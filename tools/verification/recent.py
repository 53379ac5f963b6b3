"""Results by state and micro-batch: the same computation is done once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")

LIMIT = 2**28
"""Bytes of results that are kept; those that were not asked for longest go first."""


class Recent(Generic[T]):
    """Results by state and micro-batch. States are the same if they are the same arrays (which nobody may change),
    micro-batches if they hold the same values: states are large, and most of them come from here."""

    def __init__(self, size: Callable[[T], int], limit: int = LIMIT):
        self._size, self._limit = size, limit
        self._found: OrderedDict[tuple[object, ...], tuple[T, list[np.ndarray]]] = OrderedDict()

    def clear(self) -> None:
        self._found.clear()

    def get(self, state: Mapping[str, np.ndarray], batch: Sequence[np.ndarray], compute: Callable[[], T]) -> T:
        names = sorted(state)
        arrays = [state[name] for name in names]
        key = (*names, *map(id, arrays), *((a.dtype.str, a.shape, a.tobytes()) for a in batch))
        if key not in self._found:
            # The arrays are held too: an address says nothing about an array that is gone.
            self._found[key] = (compute(), arrays)
            while len(self._found) > 1 and sum(self._size(r) for r, _ in self._found.values()) > self._limit:
                self._found.popitem(last=False)
        self._found.move_to_end(key)
        return self._found[key][0]
