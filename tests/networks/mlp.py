"""Multi-layer perceptrons: the smallest network, on which every optimizer is tried."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import nn

from .case import Batch, Case


class MLP(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Dense(8, 16)
        self.relu = nn.ReLU()
        self.output = nn.Dense(16, 4)

    def construct(self, x):
        return self.output(self.relu(self.hidden(x)))


def cross_entropy() -> nn.Cell:
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")


def classes(rng: np.random.Generator, size: int) -> Batch:
    return rng.standard_normal((size, 8)).astype(np.float32), rng.integers(0, 4, size).astype(np.int32)


def momentum(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.Momentum(parameters, 0.1, 0.9)


def half_compute() -> nn.Cell:
    """Weights in float32, the layers compute in float16."""
    return MLP().to_float(ms.float16)


def half_weights() -> nn.Cell:
    """Everything in float16, as amp level O3: gradients are float16 too."""
    network = MLP()
    for parameter in network.get_parameters():
        parameter.set_dtype(ms.float16)
    return network.to_float(ms.float16)


CASES = [
    Case("mlp", MLP, momentum, classes, cross_entropy),
    Case("mlp_dynamic_batch", MLP, momentum, classes, cross_entropy, dynamic_batch=True),
    Case("mlp_half_compute", half_compute, momentum, classes, cross_entropy, tags=frozenset({"half"})),
    Case("mlp_half_weights", half_weights, momentum, classes, cross_entropy, tags=frozenset({"half"})),
]
