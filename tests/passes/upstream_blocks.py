"""A network of all blocks that mindspore.boost.LessBN knows besides bottlenecks: mindcv's own inverted residuals and
dense layers, and basic blocks; and the same without the BatchNorms that mindspore.boost removes from it."""

from __future__ import annotations

from mindspore import nn, ops

from tests.networks import Case
from tests.networks.mlp import cross_entropy
from tests.networks.residual import conv
from tests.networks.vision import images, mindcv, momentum


class Basic(nn.Cell):
    """Main branch first; ``down`` is a convolution with a BatchNorm. ``summed``: by a sum over a tuple."""

    def __init__(self, channels: int, down: bool = False, summed: bool = False) -> None:
        super().__init__()
        self.main = nn.SequentialCell(
            conv(channels, channels, 3), nn.BatchNorm2d(channels), nn.ReLU(),
            conv(channels, channels, 3), nn.BatchNorm2d(channels),
        )  # fmt: skip
        self.down = nn.SequentialCell(conv(channels, channels), nn.BatchNorm2d(channels)) if down else nn.Identity()
        self.summed = summed
        self.relu = nn.ReLU()

    def construct(self, x):
        if self.summed:
            return self.relu(ops.addn((self.main(x), self.down(x))))
        return self.relu(self.main(x) + self.down(x))


class Blocks(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        mobile, dense = mindcv("mobilenetv2").InvertedResidual, mindcv("densenet")
        self.stem = nn.SequentialCell(conv(3, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU6())
        self.mobile = nn.SequentialCell(
            mobile(4, 4, 2, 1),  # without an expansion
            mobile(4, 6, 1, 2),  # behind one without
            mobile(6, 6, 1, 2),  # a shortcut behind a block without one
            mobile(6, 6, 1, 2),  # a shortcut behind one
            mobile(6, 8, 1, 2),  # no shortcut, behind one
        )
        self.dense = dense._DenseBlock(3, num_input_features=8, bn_size=2, growth_rate=4, drop_rate=0.0)
        self.transition = dense._Transition(20, 4)
        self.pool = nn.MaxPool2d(2, 1, pad_mode="same")
        self.basic = nn.SequentialCell(Basic(4), Basic(4), Basic(4, down=True), Basic(4, summed=True))
        self.head = nn.Dense(4, 10)

    def construct(self, x):
        x = self.dense(self.mobile(self.stem(x)))
        return self.head(self.basic(self.pool(self.transition(x))).mean((2, 3)))


REMOVED = (
    "mobile.1.layers.1",
    "mobile.2.layers.1",
    "mobile.3.layers.1",
    "mobile.4.layers.1",
    "dense.cell_list.1.norm1",
    "dense.cell_list.2.norm1",
    "basic.0.main.1",
    "basic.1.main.1",
    "basic.2.main.1",
    "basic.2.down.1",
    "basic.3.main.1",
)
"""Found by running mindspore.boost 2.10 on CPU, and by the test again. Of 31 BatchNorms."""


def without() -> nn.Cell:
    """The network whose cells of these names do nothing."""
    network = Blocks()
    for name in REMOVED:
        path, _, last = name.rpartition(".")
        cell = network.get_sub_cell(path)
        if isinstance(cell, nn.SequentialCell):
            cell[int(last)] = nn.Identity()
        else:
            setattr(cell, last, nn.Identity())
    return network


BLOCKS = Case("blocks", Blocks, momentum, images, cross_entropy)
