"""Networks whose structure is the point: dropout, two inputs, shared weights, frozen weights, regression losses."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from .case import Batch, Case
from .mlp import MLP, classes, cross_entropy, momentum


class Dropout(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Dense(8, 16)
        self.dropout = nn.Dropout(p=0.5)
        self.output = nn.Dense(16, 4)

    def construct(self, x):
        return self.output(self.dropout(self.hidden(x)))


class TwoInputs(nn.Cell):
    """Returns its loss itself: a WithLossCell passes on one input only."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Dense(8, 16)
        self.right = nn.Dense(6, 16)
        self.output = nn.Dense(16, 4)
        self.loss = cross_entropy()

    def construct(self, left, right, labels):
        return self.loss(self.output(ops.tanh(self.left(left) * self.right(right))), labels)


class SharedWeights(nn.Cell):
    """One layer called twice: its gradient is a sum of two."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Dense(8, 12)
        self.shared = nn.Dense(12, 12)
        self.output = nn.Dense(12, 4)

    def construct(self, x):
        x = ops.relu(self.enter(x))
        return self.output(ops.relu(self.shared(ops.relu(self.shared(x)))))


class FrozenPrefix(nn.Cell):
    """The first layer never trains."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Dense(8, 16)
        self.hidden = nn.Dense(16, 16)
        self.output = nn.Dense(16, 4)
        for parameter in self.frozen.get_parameters():
            parameter.requires_grad = False

    def construct(self, x):
        return self.output(ops.relu(self.hidden(ops.relu(self.frozen(x)))))


def two_inputs(rng: np.random.Generator, size: int) -> Batch:
    left, labels = classes(rng, size)
    return left, rng.standard_normal((size, 6)).astype(np.float32), labels


def targets(rng: np.random.Generator, size: int) -> Batch:
    return rng.standard_normal((size, 8)).astype(np.float32), rng.standard_normal((size, 4)).astype(np.float32)


def probabilities(rng: np.random.Generator, size: int) -> Batch:
    x, _ = targets(rng, size)
    return x, rng.integers(0, 2, (size, 4)).astype(np.float32)


def adam(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.Adam(parameters, 0.01)


CASES = [
    Case("dropout", Dropout, adam, classes, cross_entropy, tags=frozenset({"random"})),
    Case("two_inputs", TwoInputs, momentum, two_inputs),
    Case("shared_weights", SharedWeights, momentum, classes, cross_entropy),
    Case("frozen_prefix", FrozenPrefix, momentum, classes, cross_entropy, tags=frozenset({"frozen"})),
    Case("regression_mse", MLP, momentum, targets, nn.MSELoss, tags=frozenset({"loss"})),
    Case("regression_bce", MLP, adam, probabilities, nn.BCEWithLogitsLoss, tags=frozenset({"loss"})),
]
