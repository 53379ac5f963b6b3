"""Small networks of mindcv's own blocks, inverted residuals and dense blocks, each also without the BatchNorms that
mindspore.boost removes from it. `without` names those, found by running mindspore.boost 2.10 on CPU."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import nn

from tests.networks import Case
from tests.networks.mlp import cross_entropy
from tests.networks.vision import images, mindcv, momentum


class Mobile(nn.Cell):
    """As mindcv's MobileNetV2, with fewer blocks: one without an expansion, then a chain without and with shortcuts."""

    def __init__(self) -> None:
        super().__init__()
        block = mindcv("mobilenetv2").InvertedResidual
        self.features = nn.SequentialCell(
            nn.Conv2d(3, 4, 3, 2, pad_mode="pad", padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU6(),
            block(4, 4, 2, 1),
            block(4, 6, 1, 2),  # behind a block without an expansion
            block(6, 6, 1, 2),  # a shortcut behind a block without one
            block(6, 6, 1, 2),  # a shortcut behind one
            block(6, 8, 2, 2),
            block(8, 4, 1, 2),  # no shortcut behind none, with an expansion
            nn.Conv2d(4, 8, 1),
            nn.BatchNorm2d(8),
            nn.ReLU6(),
        )
        self.head = nn.Dense(8, 10)

    def construct(self, x):
        return self.head(self.features(x).mean((2, 3)))


def dense() -> nn.Cell:
    """mindcv's DenseNet with blocks of three and two layers."""
    return mindcv("densenet").DenseNet(
        growth_rate=4, block_config=(3, 2), num_init_features=4, bn_size=2, num_classes=10
    )


MOBILE = ("features.4.layers.1", "features.5.layers.1", "features.6.layers.1", "features.7.layers.1",
          "features.8.layers.1")  # fmt: skip
"""The BatchNorm behind each expansion."""
DENSE = (
    "features.denseblock1.cell_list.1.norm1",
    "features.denseblock1.cell_list.2.norm1",
    "features.denseblock2.cell_list.1.norm1",
)
"""The BatchNorm over each concatenation that another layer of the block takes."""


def without(network: nn.Cell, names: Sequence[str]) -> nn.Cell:
    """A network whose cells of these names do nothing."""
    for name in names:
        path, _, last = name.rpartition(".")
        cell = network.get_sub_cell(path) if path else network
        if isinstance(cell, nn.SequentialCell):
            cell[int(last)] = nn.Identity()
        else:
            setattr(cell, last, nn.Identity())
    return network


CASES = {
    "mobile": Case("mobile", Mobile, momentum, images, cross_entropy),
    "dense": Case("dense", dense, momentum, images, cross_entropy),
}
REMOVED = {"mobile": MOBILE, "dense": DENSE}
