"""LeNet with BatchNorm behind the first convolution."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import nn

from .case import Batch, Case
from .mlp import cross_entropy, momentum


class LeNetBatchNorm(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid")
        self.bn1 = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid", has_bias=True)
        self.bn2 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2, 2)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(16 * 5 * 5, 32)
        self.fc2 = nn.Dense(32, 10)

    def construct(self, x):
        x = self.pool(self.relu(self.bn1(self.conv1(x))))
        x = self.pool(self.relu(self.bn2(self.conv2(x))))
        return self.fc2(self.relu(self.fc1(self.flatten(x))))


def digits(rng: np.random.Generator, size: int) -> Batch:
    return rng.standard_normal((size, 1, 32, 32)).astype(np.float32), rng.integers(0, 10, size).astype(np.int32)


def adam(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.Adam(parameters, 0.001)


def sgd(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.SGD(parameters, 0.01, momentum=0.9)


_TAGS = frozenset({"batchnorm", "conv"})
CASES = [
    Case("lenet_bn", LeNetBatchNorm, momentum, digits, cross_entropy, tags=_TAGS),
    Case("lenet_bn_adam", LeNetBatchNorm, adam, digits, cross_entropy, tags=_TAGS),
    Case("lenet_bn_sgd", LeNetBatchNorm, sgd, digits, cross_entropy, tags=_TAGS),
]
