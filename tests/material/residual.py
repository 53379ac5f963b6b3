"""A residual network that is as small as can be: a stem, a bottleneck block with a downsampling branch, a head."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import nn

from tests.networks import Batch, Case
from tests.networks.mlp import cross_entropy
from tests.networks.residual import Bottleneck, conv
from tests.networks.vision import momentum


def images(rng: np.random.Generator, size: int) -> Batch:
    return rng.standard_normal((size, 3, 4, 4)).astype(np.float32), rng.integers(0, 4, size).astype(np.int32)


class Residual(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn, self.relu = conv(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.block = Bottleneck(4, 2, 6, 1, "after", nn.BatchNorm2d)
        self.head = nn.Dense(6, 4)

    def construct(self, x):
        return self.head(self.block(self.relu(self.bn(self.stem(x)))).mean((2, 3)))


def half() -> nn.Cell:
    """float16, with float32 and casts around every BatchNorm."""
    return ms.amp.auto_mixed_precision(Residual(), "O2")


CASES = [
    Case("residual", Residual, momentum, images, cross_entropy),
    Case("residual_half", half, momentum, images, cross_entropy),
]
