"""The network of the example in the documentation of mindspore.boost.GroupLossScaleManager, which calls the manager."""

from __future__ import annotations

from typing import Any

from mindspore import nn


class Net(nn.Cell):
    def __init__(self, enhanced_amp: Any, num_class: int = 10, num_channel: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(num_channel, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.fc1 = nn.Dense(16 * 5 * 5, 120, weight_init="ones")
        self.fc2 = nn.Dense(120, 84, weight_init="ones")
        self.fc3 = nn.Dense(84, num_class, weight_init="ones")
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()
        self.enhanced_amp = enhanced_amp

    def construct(self, x):
        x = self.enhanced_amp(x, 0, 1)
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        x = self.flatten(x)
        x = self.enhanced_amp(x, 1, 2)
        x = self.relu(self.fc1(x))
        x = self.relu(self.fc2(x))
        x = self.fc3(x)
        return self.enhanced_amp(x, 2, 3)
