"""LeNet-5 as in MindSpore's quick-start tutorial, exported as the training graph that this project compiles.

python examples/lenet.py lenet_train.mindir
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Before MindSpore is imported: without it oneDNN's convolutions are some 60 times slower in MindSpore 2.9 and 2.10.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")

import mindspore as ms
import numpy as np
from mindspore import nn


class LeNet5(nn.Cell):
    """Images of shape (n, 1, 32, 32) to logits of shape (n, 10)."""

    def __init__(self, num_class: int = 10, num_channel: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(num_channel, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.fc1 = nn.Dense(16 * 5 * 5, 120)
        self.fc2 = nn.Dense(120, 84)
        self.fc3 = nn.Dense(84, num_class)
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()

    def construct(self, x):
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        x = self.flatten(x)
        x = self.relu(self.fc1(x))
        x = self.relu(self.fc2(x))
        return self.fc3(x)


def training_cell(learning_rate: float = 0.01, momentum: float = 0.9, seed: int = 1) -> nn.TrainOneStepCell:
    """The tutorial's loss and optimizer around a fresh LeNet-5; the same initial weights for the same seed."""
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    ms.set_seed(seed)
    network = LeNet5()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), learning_rate, momentum)
    return nn.TrainOneStepCell(nn.WithLossCell(network, loss), optimizer).set_train()


def export_lenet(
    path: str | Path, batch_size: int = 32, learning_rate: float = 0.01, momentum: float = 0.9, seed: int = 1
) -> Path:
    """Writes the training cell as MindIR; it takes images (batch_size, 1, 32, 32) and int32 labels (batch_size,)."""
    images = ms.Tensor(np.zeros((batch_size, 1, 32, 32), np.float32))
    labels = ms.Tensor(np.zeros(batch_size, np.int32))
    path = Path(path)
    ms.export(training_cell(learning_rate, momentum, seed), images, labels, file_name=str(path), file_format="MINDIR")
    return path


def accuracy(parameters: dict[str, np.ndarray], images: np.ndarray, labels: np.ndarray, batch_size: int = 500) -> float:
    """The share of images, 0 to 1, that LeNet-5 with these weights classifies right; other states are ignored.

    Raises KeyError if a weight is missing.
    """
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    network = LeNet5().set_train(False)
    for weight in network.get_parameters():
        weight.set_data(ms.Tensor(parameters[weight.name]))
    right = 0
    for start in range(0, len(images), batch_size):
        logits = network(ms.Tensor(images[start : start + batch_size])).asnumpy()
        right += int((logits.argmax(axis=1) == labels[start : start + batch_size]).sum())
    return right / len(images)


if __name__ == "__main__":
    print(export_lenet(sys.argv[1] if len(sys.argv) > 1 else "lenet_train.mindir"))
