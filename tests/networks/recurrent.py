"""Recurrent networks: MindSpore's LSTM, and a cell of our own unrolled over time: its weights serve every step."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from .case import Batch, Case
from .mlp import cross_entropy

LENGTH, FEATURES, HIDDEN = 5, 6, 8


class LSTMClassifier(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, HIDDEN, batch_first=True)
        self.head = nn.Dense(HIDDEN, 4)

    def construct(self, x):
        output, _ = self.lstm(x)
        return self.head(output[:, -1])


class UnrolledRecurrence(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Dense(FEATURES, HIDDEN)
        self.again = nn.Dense(HIDDEN, HIDDEN, has_bias=False)
        self.head = nn.Dense(HIDDEN, 4)

    def construct(self, x):
        hidden = ops.zeros((x.shape[0], HIDDEN), ms.float32)
        for time in range(LENGTH):
            hidden = ops.tanh(self.inner(x[:, time]) + self.again(hidden))
        return self.head(hidden)


def sequences(rng: np.random.Generator, size: int) -> Batch:
    x = rng.standard_normal((size, LENGTH, FEATURES)).astype(np.float32)
    return x, rng.integers(0, 4, size).astype(np.int32)


def adam(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.Adam(parameters, 0.01)


CASES = [
    Case("lstm", LSTMClassifier, adam, sequences, cross_entropy, tags=frozenset({"recurrent"})),
    Case("recurrence_unrolled", UnrolledRecurrence, adam, sequences, cross_entropy, tags=frozenset({"recurrent"})),
]
