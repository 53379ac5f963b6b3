"""An average of weights, moved in the memory of its state."""

from __future__ import annotations

from typing import Any

BLOCK = 2**16
"""Elements that are moved at once: what is computed of them stays in the cache of a core. (A second thread gains
nothing: in a step the time is that of memory.)"""


def move(average: Any, weight: Any, kept: Any, taken: Any) -> None:
    """``average`` · ``kept`` + ``weight`` · ``taken`` in the place of ``average``, float32 arrays of one shape, each
    step rounded as MindSpore's kernels round it. (Below 1.2e-38 some of MindSpore's threads round to zero and others do
    not; here nothing does.) Memory is passed three times: both are read, and one is written. The caller turns the
    warnings of numpy off."""
    import numpy as np

    old, new = average.reshape(-1), weight.reshape(-1)
    share = np.empty(min(BLOCK, old.size), old.dtype)
    for start in range(0, old.size, BLOCK):
        part, given = old[start : start + BLOCK], new[start : start + BLOCK]
        product = np.multiply(given, taken, out=share[: part.size])
        np.add(np.multiply(part, kept, out=part), product, out=part)
