"""Residual networks, each written with and without the normalisations inside its blocks.

`inner` builds a normalisation that is not the last of its branch: BatchNorm2d, or nothing for the network without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from .case import Batch, Case
from .mlp import cross_entropy
from .vision import adam, images, mindcv, mobilenet_v2, momentum, resnet18

Norm = Callable[[int], nn.Cell]


def nothing(channels: int) -> nn.Cell:
    return nn.Identity()


def conv(channels: int, outputs: int, size: int = 1, stride: int = 1, group: int = 1) -> nn.Cell:
    return nn.Conv2d(channels, outputs, size, stride, pad_mode="pad", padding=size // 2, group=group)


class Bottleneck(nn.Cell):
    """`join` is how branch and identity are added: "after" (y + x), "before" (ops.add(x, y)), "in_place" (y += x)."""

    def __init__(self, channels: int, width: int, outputs: int, stride: int, join: str, inner: Norm) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(channels, width), inner(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), inner(width)
        self.conv3, self.bn3 = conv(width, outputs), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.down = None
        if stride != 1 or channels != outputs:
            self.down = nn.SequentialCell(conv(channels, outputs, 1, stride), nn.BatchNorm2d(outputs))
        self.join = join

    def construct(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        if self.down is not None:
            x = self.down(x)
        if self.join == "after":
            y = y + x
        elif self.join == "before":
            y = ops.add(x, y)
        else:
            y += x
        return self.relu(y)


class Network(nn.Cell):
    """A stem with a normalisation that stays, blocks, the mean over the image, a dense head."""

    def __init__(self, blocks: list[nn.Cell], outputs: int) -> None:
        super().__init__()
        self.stem, self.bn, self.relu = conv(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU()
        self.blocks = nn.SequentialCell(blocks)
        self.head = nn.Dense(outputs, 10)

    def construct(self, x):
        x = self.blocks(self.relu(self.bn(self.stem(x))))
        return self.head(x.mean((2, 3)))


def bottlenecks(join: str, inner: Norm = nn.BatchNorm2d) -> nn.Cell:
    """Eleven BatchNorms: the stem's, three a block, one in the branch that changes the number of channels."""
    blocks = [Bottleneck(8, 4, 16, 1, join, inner), *(Bottleneck(16, 4, 16, 1, join, inner) for _ in range(2))]
    return Network(blocks, 16)


def upstream(inner: Norm = nn.BatchNorm2d) -> nn.Cell:
    """As `bottlenecks`; without them, as upstream does it, the downsampling branch has none either."""
    network = bottlenecks("after", inner)
    if inner is nothing:
        network.blocks[0].down[1] = nn.Identity()
    return network


class Basic(nn.Cell):
    """Two convolutions; identity and branch are added either way round, in a tuple where `summed`."""

    def __init__(
        self, channels: int, outputs: int, stride: int, activation: nn.Cell, inner: Norm, group: int = 1, **how: bool
    ) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(channels, outputs, 3, stride, group), inner(outputs)
        self.conv2, self.bn2 = conv(outputs, outputs, 3), nn.BatchNorm2d(outputs)
        self.activation = activation
        self.down = conv(channels, outputs, 1, stride) if stride != 1 or channels != outputs else nn.Identity()
        self.summed = how.get("summed", False)
        self.swapped = how.get("swapped", False)

    def construct(self, x):
        y = self.bn2(self.conv2(self.activation(self.bn1(self.conv1(x)))))
        if self.summed:
            y = ops.addn((y, self.down(x)))
        elif self.swapped:
            y = self.down(x) + y
        else:
            y = y + self.down(x)
        return self.activation(y)


def activations(inner: Norm = nn.BatchNorm2d) -> nn.Cell:
    """A basic block for each activation, with every way of adding, grouped convolutions among them."""
    return Network(
        [
            Basic(8, 8, 1, nn.ReLU6(), inner),
            Basic(8, 8, 1, nn.HSwish(), inner, group=4, swapped=True),
            Basic(8, 12, 2, nn.SiLU(), inner),
            Basic(12, 12, 1, nn.GELU(), inner, summed=True),
            Basic(12, 12, 1, nn.PReLU(12), inner, group=12),
            Basic(12, 16, 1, nn.LeakyReLU(), inner, swapped=True),
        ],
        16,
    )


class PreActivation(nn.Cell):
    """Normalisation and activation in front of each convolution: the last one is inside, the first at the entry."""

    def __init__(self, channels: int, inner: Norm) -> None:
        super().__init__()
        self.bn1, self.conv1 = inner(channels), conv(channels, channels, 3)
        self.bn2, self.conv2 = nn.BatchNorm2d(channels), conv(channels, channels, 3)
        self.relu = nn.ReLU()

    def construct(self, x):
        return x + self.conv2(self.relu(self.bn2(self.conv1(self.relu(self.bn1(x))))))


def pre_activation(inner: Norm = nn.BatchNorm2d) -> nn.Cell:
    return Network([PreActivation(8, inner), PreActivation(8, inner)], 8)


class Nested(nn.Cell):
    """A block in the branch of another: each BatchNorm counts for the innermost block around it."""

    def __init__(self, inner: Norm) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(8, 8, 3), inner(8)
        self.block = Basic(8, 8, 1, nn.ReLU(), inner)
        self.conv2, self.bn2 = conv(8, 8, 3), inner(8)
        self.conv3, self.bn3 = conv(8, 8, 3), nn.BatchNorm2d(8)

    def construct(self, x):
        y = ops.relu(self.bn2(self.conv2(self.block(ops.relu(self.bn1(self.conv1(x)))))))
        return x + self.bn3(self.conv3(y))


def nested(inner: Norm = nn.BatchNorm2d) -> nn.Cell:
    return Network([Nested(inner)], 8)


def half(inner: Norm = nn.BatchNorm2d) -> nn.Cell:
    """Mixed precision as amp level O2: float16, with float32 and casts around every BatchNorm."""
    return ms.amp.auto_mixed_precision(bottlenecks("before", inner), "O2")


def untrained(inner: Norm = nn.BatchNorm2d) -> nn.Cell:
    """Inner BatchNorms without parameters that are trained."""
    return bottlenecks("before", inner if inner is nothing else lambda n: nn.BatchNorm2d(n, affine=False))


class Shared(nn.Cell):
    """One BatchNorm used twice, in the branch of a block."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = conv(8, 8, 3), conv(8, 8, 3), conv(8, 8, 3)
        self.bn, self.last = nn.BatchNorm2d(8), nn.BatchNorm2d(8)

    def construct(self, x):
        y = ops.relu(self.bn(self.conv1(x)))
        y = ops.relu(self.bn(self.conv2(y)))
        return x + self.last(self.conv3(y))


class Regularized(nn.Cell):
    """The first gamma of the block is part of the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.network = bottlenecks("after")
        self.loss = cross_entropy()

    def construct(self, x, labels):
        return self.loss(self.network(x), labels) + 0.01 * ops.square(self.network.blocks[0].bn1.gamma).sum()


class Adds(nn.Cell):
    """Additions that are no residual block: of a constant, of two inputs, of what one convolution makes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv(3, 8, 3), conv(3, 8, 3)
        self.bn1, self.bn2, self.bn3, self.bn4 = (nn.BatchNorm2d(8) for _ in range(4))
        self.head = nn.Dense(8, 10)

    def construct(self, x, other):
        y = ops.relu(self.bn2(ops.relu(self.bn1(self.conv1(x))))) + 1.0
        y = y + ops.relu(self.bn4(ops.relu(self.bn3(self.conv2(other)))))
        return self.head(y.mean((2, 3)))


def without_mindcv(network: nn.Cell) -> nn.Cell:
    """A mindcv network without the inner normalisations of its blocks, by what its authors call them."""
    kinds = {"BasicBlock": ("bn1",), "Bottleneck": ("bn1", "bn2"), "InvertedResidual": ()}
    for _, cell in list(network.cells_and_names()):
        for name in kinds.get(type(cell).__name__, ()):
            setattr(cell, name, nn.Identity())
        if type(cell).__name__ == "InvertedResidual" and cell.use_res_connect:
            for i in (1, 4):
                cell.layers[i] = nn.Identity()
    return network


def resnet50() -> nn.Cell:
    return mindcv("resnet").resnet50(num_classes=10)


WITHOUT: dict[str, Callable[[], nn.Cell]] = {
    "residual_after": lambda: bottlenecks("after", nothing),
    "residual_before": lambda: bottlenecks("before", nothing),
    "residual_in_place": lambda: bottlenecks("in_place", nothing),
    "residual_upstream": lambda: upstream(nothing),
    "residual_activations": lambda: activations(nothing),
    "residual_pre_activation": lambda: pre_activation(nothing),
    "residual_nested": lambda: nested(nothing),
    "residual_half": lambda: half(nothing),
    "residual_untrained": lambda: untrained(nothing),
    "resnet18": lambda: without_mindcv(resnet18()),
    "resnet50": lambda: without_mindcv(resnet50()),
    "mobilenet_v2": lambda: without_mindcv(mobilenet_v2()),
}
"""The network of the case of that name without the inner normalisations."""


def two_images(rng: np.random.Generator, size: int) -> Batch:
    x, labels = images(rng, size)
    return x, images(rng, size)[0], labels


class TwoImages(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.network, self.loss = Adds(), cross_entropy()

    def construct(self, x, other, labels):
        return self.loss(self.network(x, other), labels)


def case(name: str, network: Callable[[], nn.Cell], **others: Any) -> Case:
    settings = {"optimizer": momentum, "batch": images, "loss": cross_entropy, **others}
    tags = frozenset({"batchnorm", "conv", "residual"}) | settings.pop("tags", frozenset())
    return Case(name, network, tags=tags, **settings)


CASES = [
    case("residual_after", lambda: bottlenecks("after")),
    case("residual_before", lambda: bottlenecks("before"), optimizer=adam),
    case("residual_in_place", lambda: bottlenecks("in_place")),
    case("residual_upstream", upstream),
    case("residual_activations", activations),
    case("residual_pre_activation", pre_activation),
    case("residual_nested", nested),
    case("residual_half", half, tags=frozenset({"half"})),
    case("residual_untrained", untrained),
    case("residual_shared", lambda: Network([Shared()], 8)),
    case("residual_regularized", Regularized, loss=None),
    case("residual_none", TwoImages, loss=None, batch=two_images),
    Case(
        "resnet50", resnet50, momentum, images, cross_entropy, tags=frozenset({"mindcv", "batchnorm", "deep_batchnorm"})
    ),
]
