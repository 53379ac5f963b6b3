"""AdaSum in numpy, by the formula of the paper: the judge of what ranks compute together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def pair(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two steps as one: each keeps what the other does not hold already. A step of zero leaves the other as it is."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    dot, aa, bb = (float((x * y).sum()) for x, y in ((a, b), (a, a), (b, b)))
    return (1 - (dot / (2 * aa) if aa else 0)) * a + (1 - (dot / (2 * bb) if bb else 0)) * b


def combine(steps: Sequence[np.ndarray]) -> np.ndarray:
    """The steps of a power of two of groups: the two of each pair, then the pairs of pairs."""
    if len(steps) == 1:
        return steps[0].astype(np.float64)
    half = [pair(a, b) for a, b in zip(steps[::2], steps[1::2], strict=True)]
    return combine(half)
