"""Networks of mindcv at small size (32x32 images, 10 classes), and a small network of grouped convolutions."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn

from .case import Batch, Case
from .mlp import cross_entropy


def images(rng: np.random.Generator, size: int) -> Batch:
    return rng.standard_normal((size, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, size).astype(np.int32)


def mindcv(module: str) -> Any:
    """A module of `mindcv.models`; says how to install mindcv where it is missing."""
    import importlib

    try:
        return importlib.import_module(f"mindcv.models.{module}")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error}: this network comes from mindcv. Install it without its dependencies, "
            "`pip install --no-deps mindcv==0.3.0`; the development dependencies hold what it needs"
        ) from error


def resnet18() -> nn.Cell:
    return mindcv("resnet").resnet18(num_classes=10)


def mobilenet_v2_dropout() -> nn.Cell:
    return mindcv("mobilenetv2").MobileNetV2(alpha=1.0, num_classes=10)


def mobilenet_v2() -> nn.Cell:
    """Without its dropout, so that two runs of it can be compared value by value."""
    network = mobilenet_v2_dropout()
    for _, cell in network.cells_and_names():
        if isinstance(cell, nn.Dropout):
            cell.p = 0.0
    return network


def vit() -> nn.Cell:
    return mindcv("vit").VisionTransformer(
        image_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=10
    )


class GroupedConvolutions(nn.Cell):
    """A strided stem, a depthwise separable block, a grouped convolution with a residual, average pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, pad_mode="pad", padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, pad_mode="same", group=8)
        self.bn2 = nn.BatchNorm2d(8)
        self.pointwise = nn.Conv2d(8, 16, 1)
        self.bn3 = nn.BatchNorm2d(16)
        self.grouped = nn.Conv2d(16, 16, 3, pad_mode="same", group=4)
        # Not homogeneous: behind ReLU the next BatchNorm would cancel the scale, and with it the gradient of gamma.
        self.activation = nn.HSwish()
        self.pool = nn.AvgPool2d(4, 4)
        self.flatten = nn.Flatten()
        self.head = nn.Dense(16 * 4 * 4, 10)

    def construct(self, x):
        x = self.activation(self.bn1(self.stem(x)))
        x = self.activation(self.bn3(self.pointwise(self.activation(self.bn2(self.depthwise(x))))))
        x = x + self.grouped(x)
        return self.head(self.flatten(self.pool(x)))


class Patches(nn.Cell):
    """Two convolutions on patches, oblong and square, so that one has a gradient to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.oblong = nn.Conv2d(3, 6, (2, 4), stride=(2, 4), pad_mode="valid", has_bias=True)
        self.square = nn.Conv2d(6, 8, 4, stride=4, pad_mode="same")
        self.activation = nn.GELU()
        self.head = nn.Dense(8 * 4 * 2, 10)

    def construct(self, x):
        x = self.square(self.activation(self.oblong(x)))
        return self.head(self.activation(x).reshape(x.shape[0], -1))


def momentum(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.Momentum(parameters, 0.01, 0.9)


def rmsprop(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.RMSProp(parameters, 0.001)


def adam(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.Adam(parameters, 0.001, weight_decay=1e-4)


def adam_weight_decay(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.AdamWeightDecay(parameters, 0.001, weight_decay=0.01)


_DEEP = frozenset({"batchnorm", "conv", "mindcv", "deep_batchnorm"})
CASES = [
    Case("grouped_conv", GroupedConvolutions, momentum, images, cross_entropy, tags=frozenset({"batchnorm", "conv"})),
    Case("resnet18", resnet18, momentum, images, cross_entropy, tags=_DEEP),
    Case("resnet18_adam", resnet18, adam, images, cross_entropy, tags=_DEEP),
    Case("mobilenet_v2", mobilenet_v2, momentum, images, cross_entropy, tags=_DEEP),
    Case("mobilenet_v2_rmsprop", mobilenet_v2, rmsprop, images, cross_entropy, tags=_DEEP),
    Case("mobilenet_v2_dropout", mobilenet_v2_dropout, momentum, images, cross_entropy, tags=_DEEP | {"random"}),
    Case("vit", vit, adam_weight_decay, images, cross_entropy, tags=frozenset({"mindcv", "transformer"})),
]
