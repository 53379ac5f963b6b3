"""Dense layers in several cells: by two in one cell, in a residual block, in a list, and one that was made last but is
called first."""

from __future__ import annotations

from mindspore import nn


class Pair(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.relu = nn.Dense(8, 8), nn.Dense(8, 8, has_bias=False), nn.Tanh()

    def construct(self, x):
        return self.second(self.relu(self.first(x)))


class Residual(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.relu = nn.Dense(8, 8), nn.Dense(8, 8), nn.Tanh()

    def construct(self, x):
        return x + self.second(self.relu(self.first(x)))


class Cells(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Dense(8, 4)
        self.pair = Pair()
        self.blocks = nn.SequentialCell(Residual(), Residual())
        self.rest = nn.CellList([nn.Dense(8, 8), nn.Dense(8, 8)])
        self.made_last = nn.Dense(8, 8)
        self.relu = nn.Tanh()

    def construct(self, x):
        x = self.blocks(self.relu(self.made_last(x)))
        for layer in self.rest:
            x = self.relu(layer(x))
        return self.output(self.relu(self.pair(x)))


NORMALISED = (
    "pair.second.weight",
    "blocks.0.second.weight",
    "blocks.1.second.weight",
    "rest.1.weight",
    "made_last.weight",
)
"""What mindspore.boost 2.10 makes a normalised layer of: the Dense that was made last, of each cell."""
