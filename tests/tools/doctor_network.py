"""A training cell that was exported with several mistakes at once. MindSpore parses the source of Cells, so they stand
in a file of their own."""

from __future__ import annotations

from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(8, 6)
        self.norm = nn.BatchNorm1d(6)
        self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")

    def construct(self, x, labels, unused):
        return self.loss(self.norm(self.dense(ops.cast(x, ms.float32))), labels)


def export(path: Path) -> Path:
    """Without set_train(), with an input of float64 and one that nothing uses."""
    ms.set_seed(1)
    network = Network()
    cell = nn.TrainOneStepCell(network, nn.Momentum(network.trainable_params(), 0.1, 0.9))
    x, labels = Tensor(np.ones((4, 8), np.float64)), Tensor(np.zeros(4, np.int32))
    ms.export(cell, x, labels, Tensor(np.ones(4, np.float32)), file_name=str(path), file_format="MINDIR")
    return path
