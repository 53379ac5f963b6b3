"""A network whose loss spells the mask that its dropout drew: each kept element adds its power of two."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import nn, ops

BITS = 24
"""As many as a float32 holds: of 18 masks two are the same once in 100,000 times."""


class Drawing(nn.Cell):
    """Two weights, so that freezing has something to freeze; the weights stay one where the rate is zero."""

    def __init__(self):
        super().__init__()
        self.first = ms.Parameter(ms.Tensor(np.ones((1, BITS), np.float32)), name="first")
        self.second = ms.Parameter(ms.Tensor(np.ones((1, BITS), np.float32)), name="second")
        self.dropout = nn.Dropout(p=0.5)

    def construct(self, x):
        return ops.sum(self.dropout(x * self.first) * self.second) / 2


def powers() -> np.ndarray:
    return (2.0 ** np.arange(BITS, dtype=np.float32))[None]
