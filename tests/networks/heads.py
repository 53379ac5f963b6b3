"""Networks of the zoo with the last dense layer normalised, as upstream writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mindspore import mint, nn
from mindspore.boost.less_batch_normalization import CommonHeadLastFN

from .case import Case

HEADS = {
    "MLP": "output",
    "MintMLP": "output",
    "LeNetBatchNorm": "fc2",
    "ResNet": "classifier",
    "Printing": "output",
    "LSTMClassifier": "head",
    "Loss": "network.output",
}
"""The name of the last dense layer, by class of network."""


class MintMLP(nn.Cell):
    """Layers of `mindspore.mint`: one primitive for product and bias."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = mint.nn.Linear(8, 16)
        self.relu = mint.nn.ReLU()
        self.output = mint.nn.Linear(16, 4)

    def construct(self, x):
        return self.output(self.relu(self.hidden(x)))


def normalised_head(network: nn.Cell, bias: str = "keep") -> nn.Cell:
    """Puts upstream's cell in the place of the network's last dense layer; weight and bias are those of the layer."""
    owner: Any = network
    *path, name = HEADS[type(network).__name__].split(".")
    for step in path:
        owner = getattr(owner, step)
    dense = getattr(owner, name)
    outputs, inputs = dense.weight.shape
    head = CommonHeadLastFN(inputs, outputs, has_bias=bias == "keep")
    head.weight.set_data(dense.weight.value())
    if bias == "keep":
        head.bias.set_data(dense.bias.value())
    layer = dense.weight.name.rpartition(".")[0]
    setattr(owner, name, head)
    for parameter in head.get_parameters():
        parameter.name = f"{layer}.{parameter.name.rpartition('.')[2]}"
    return network


def with_normalised_head(case: Case, bias: str = "keep") -> Case:
    network: Callable[[], nn.Cell] = case.network
    return replace(case, network=lambda: normalised_head(network(), bias))
