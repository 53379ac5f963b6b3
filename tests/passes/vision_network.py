"""What vision models are made of beside convolutions, each as a step between a convolution and a dense layer. MindSpore
parses the source of Cells, so they stand in a file of their own."""

from __future__ import annotations

from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops


class AdaptivePools(nn.Cell):
    def __init__(self):
        super().__init__()
        self.average = nn.AdaptiveAvgPool2d((4, 4))
        self.largest = nn.AdaptiveMaxPool2d((2, 2))

    def construct(self, x):
        return self.largest(self.average(x))


class CeilPools(nn.Cell):
    def __init__(self):
        super().__init__()
        self.largest = nn.MaxPool2d(3, 2, pad_mode="pad", padding=1, ceil_mode=True)
        self.average = nn.AvgPool2d(3, 2, pad_mode="pad", padding=1, ceil_mode=True)

    def construct(self, x):
        return self.average(self.largest(x))


class Norms(nn.Cell):
    def __init__(self):
        super().__init__()
        self.group = nn.GroupNorm(2, 6)
        self.local = ops.LRN()

    def construct(self, x):
        return self.local(self.group(x))


class Resize(nn.Cell):
    def construct(self, x):
        x = ops.interpolate(x, size=(16, 16), mode="nearest")
        x = ops.interpolate(x, size=(12, 12), mode="bilinear", align_corners=True)
        return ops.interpolate(x, size=(8, 8), mode="bicubic", align_corners=True)


class DropPath(nn.Cell):
    """A whole sample is dropped, by a mask that starts from ones of the batch's extent."""

    def __init__(self):
        super().__init__()
        self.ones = ops.Ones()
        self.dropout = nn.Dropout(p=0.2)

    def construct(self, x):
        mask = self.dropout(self.ones((x.shape[0], 1, 1, 1), ms.float32))
        return x * mask * ops.bernoulli(ops.ones((x.shape[0], 1, 1, 1)), 0.8)


class Positions(nn.Cell):
    """Where a point stands, computed for each sample from ones: nothing of it comes from an input."""

    def construct(self, x):
        ones = ops.ones((x.shape[0], 8, 8), ms.float32)
        both = ops.stack((ops.sin(ops.cumsum(ones, 1)), ops.cos(ops.cumsum(ones, 2))), 1)
        return x + ops.concat((both, both, both), 1)


class Windows(nn.Cell):
    def construct(self, x):
        patches = ops.unfold(ops.roll(x, (1, -1), (2, 3)), kernel_size=2, stride=2)
        return ops.flip(patches.reshape((x.shape[0], 24, 4, 4)), (2,))


class Edges(nn.Cell):
    def __init__(self):
        super().__init__()
        self.mirror = nn.Pad(((0, 0), (0, 0), (1, 1), (1, 1)), mode="REFLECT")

    def construct(self, x):
        return ops.narrow(ops.pad(self.mirror(x), (1, 2, 0, 0)), 2, 1, 4)


class Split(nn.Cell):
    """As many parts as samples."""

    def construct(self, x):
        first, second, third, fourth = ops.split(ops.concat((x, x), 1), 3, 1)
        return ops.concat((fourth, second, third, first), 1)


class Einsum(nn.Cell):
    def construct(self, x):
        return ops.einsum("bchw,bcvw->bchv", x, x)


class Mint(nn.Cell):
    def construct(self, x):
        x = mint.nn.functional.layer_norm(x, (8,))
        x = mint.nn.functional.avg_pool2d(mint.nn.functional.max_pool2d(x, 2), 2)
        x = mint.nn.functional.interpolate(x, size=(8, 8), mode="bilinear")
        return mint.nn.functional.linear(mint.nn.functional.adaptive_avg_pool2d(x, 2), ops.ones((4, 2)))


KINDS = {
    "adaptive": AdaptivePools,
    "ceil": CeilPools,
    "norms": Norms,
    "resize": Resize,
    "drop_path": DropPath,
    "positions": Positions,
    "windows": Windows,
    "edges": Edges,
    "split": Split,
    "einsum": Einsum,
    "mint": Mint,
}


class Network(nn.Cell):
    def __init__(self, kinds):
        super().__init__()
        self.convolution = nn.Conv2d(3, 6, 3, pad_mode="same")
        self.between = nn.SequentialCell([KINDS[kind]() for kind in kinds])
        self.dense = nn.Dense(5, 5)
        self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")

    def construct(self, x, labels):
        x = self.between(self.convolution(x))
        x = x.reshape((x.shape[0], -1)).mean(axis=1, keep_dims=True)
        return self.loss(self.dense(ops.tile(x, (1, 5))), labels)


def batch(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((size, 3, 8, 8)).astype(np.float32), rng.integers(0, 5, size).astype(np.int32)


def export(kinds: tuple[str, ...], size: int, folder: Path) -> Path:
    """A training cell of a network with these steps, for batches of ``size``."""
    ms.set_seed(1)
    network = Network(kinds)
    cell = nn.TrainOneStepCell(network, nn.Momentum(network.trainable_params(), 0.1, 0.9)).set_train()
    path = folder / f"{'-'.join(kinds)}.{size}"
    ms.export(cell, *map(Tensor, batch(size, 0)), file_name=str(path), file_format="MINDIR")
    return path.with_name(f"{path.name}.mindir")
