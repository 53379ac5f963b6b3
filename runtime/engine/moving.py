"""Averages of weights, moved in the memory of their states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

BLOCK = 2**16
"""Elements that are moved at once: what is computed of them stays in the cache of a core. (A second thread gains
nothing: in a step the time is that of memory.)"""


class Moves:
    """Moves of averages that happen together, each given as the float32 arrays of an average and its weight, of one
    shape. All that is the same each time is made once: a small average takes the calls of its three operations.
    ``addresses``: what says where each array's memory should be, in the order of the arrays."""

    def __init__(self, pairs: Sequence[tuple[Any, Any]], addresses: Sequence[Callable[[], int]] = ()) -> None:
        flat = [(average.reshape(-1), weight.reshape(-1)) for average, weight in pairs]
        product = np.empty(min(BLOCK, max(average.size for average, _ in flat)), np.float32)
        self._pieces = [
            (average[start : start + BLOCK], weight[start : start + BLOCK], product[: average.size - start])
            for average, weight in flat
            for start in range(0, average.size, BLOCK)
        ]
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
        multiply, add = np.multiply, np.add
        for average, weight, product in self._pieces:
            multiply(weight, taken, product)
            multiply(average, kept, average)
            add(average, product, average)
