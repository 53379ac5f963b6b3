"""Networks for the tests of evaluation, and what they give natively. Graph mode needs their source in a file."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from tests.networks.case import Batch, Case
from tests.networks.mlp import cross_entropy


class Convolutions(nn.Cell):
    """A residual block that less-bn takes BatchNorms from, a dropout, a dense head."""

    def __init__(self, inner: bool = True) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
        self.conv1, self.bn1 = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4) if inner else nn.Identity()
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(p=0.4)
        self.relu = nn.ReLU()
        self.output = nn.Dense(4, 3)

    def construct(self, x):
        x = self.relu(self.bn(self.stem(x)))
        y = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(x + self.bn2(self.conv2(y)))
        return self.output(self.dropout(x.mean((2, 3))))


class Heads(nn.Cell):
    """Two heads, one of them behind a Sigmoid, and an input that the labels do not go with."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Dense(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.kind, self.place = nn.Dense(16, 4), nn.Dense(16, 2)

    def construct(self, x, bias):
        x = ops.tanh(self.norm(self.trunk(x)) + bias)
        return self.kind(x), ops.sigmoid(self.place(x))


class HeadsLoss(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.network = Heads()
        self.kind_loss, self.place_loss = cross_entropy(), nn.MSELoss()

    def construct(self, x, bias, labels, places):
        kinds, found = self.network(x, bias)
        return self.kind_loss(kinds, labels) + 0.5 * self.place_loss(found, places)


class WrittenState(nn.Cell):
    """Its forward part writes state and reads what it wrote: the evaluation uses the value and leaves the state."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = ms.Parameter(ms.Tensor(np.full(8, 0.1, np.float32)), name="mean", requires_grad=False)
        self.calls = ms.Parameter(ms.Tensor(1.0, ms.float32), name="calls", requires_grad=False)
        self.output = nn.Dense(8, 4)

    def construct(self, x):
        ops.assign(self.mean, 0.9 * self.mean + 0.1 * ops.stop_gradient(x.mean(0)))
        ops.assign_add(self.calls, ms.Tensor(1.0, ms.float32))
        return self.output((x - self.mean) / self.calls)


class Positions(nn.Cell):
    """Its graph holds the batch size as a number that nothing tells from another."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Dense(8, 4)

    def construct(self, x):
        return self.output(x) / 4.0 + ops.arange(0, x.shape[0]).reshape(-1, 1).astype(ms.float32)


class First(nn.Cell):
    """In the place of a loss: what it would be taken of."""

    def construct(self, prediction, labels):
        return prediction


def images(rng: np.random.Generator, size: int) -> Batch:
    return rng.standard_normal((size, 2, 8, 8)).astype(np.float32), rng.integers(0, 3, size).astype(np.int32)


def two_targets(rng: np.random.Generator, size: int) -> Batch:
    x, bias = rng.standard_normal((size, 8)), rng.standard_normal(16)
    return (
        x.astype(np.float32), bias.astype(np.float32), rng.integers(0, 4, size).astype(np.int32),
        rng.random((size, 2)).astype(np.float32),
    )  # fmt: skip


def momentum(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.Momentum(parameters, 0.05, 0.9)


CONVOLUTIONS = Case("convolutions", Convolutions, momentum, images, cross_entropy)


def natively(network: nn.Cell, state: dict[str, np.ndarray], *inputs: np.ndarray) -> Any:
    """What the network gives with this state in inference mode: an array, or a list of them. ``state`` must hold all
    of its parameters."""
    missing = [p.name for p in network.get_parameters() if p.name not in state]
    assert not missing
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.load_param_into_net(network, {k: ms.Parameter(ms.Tensor(v), name=k) for k, v in state.items()})
    found = network.set_train(False)(*map(ms.Tensor, inputs))
    return [v.asnumpy() for v in found] if isinstance(found, tuple) else found.asnumpy()


class Masked(nn.Cell):
    """A mask of what is allowed acts behind the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Dense(6, 4)

    def construct(self, x, allowed):
        return ops.masked_fill(self.output(x), ops.logical_not(allowed), ms.Tensor(-1e9, ms.float32))


class Offset(nn.Cell):
    """An offset is added behind the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Dense(6, 1)

    def construct(self, x, offset):
        return self.output(x) + offset


class Pooled(nn.Cell):
    """The outputs of the last layer are pooled by weights. MindSpore puts operations of the loss in this cell's scope,
    because both use the same methods of Tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Dense(6, 3)

    def construct(self, x, weights):
        return (self.output(x) * weights.expand_dims(-1)).sum(1) / weights.sum(1, keepdims=True)


class Summed(nn.Cell):
    """The only operation behind the last layer is one of the loss too, so both have the scope of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Dense(6, 3)

    def construct(self, x):
        return self.output(x).sum(1)


class LossOfLast(nn.Cell):
    """A cell of the user's own, of which nobody knows what its inputs are."""

    def __init__(self, network: nn.Cell, loss: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.loss = network, loss

    def construct(self, *inputs):
        return self.loss(self.network(*inputs[:-1]), inputs[-1])


def masked(rng: np.random.Generator, size: int) -> Batch:
    labels = rng.integers(0, 4, size).astype(np.int32)
    allowed = rng.random((size, 4)) > 0.5
    allowed[np.arange(size), labels] = True
    return rng.standard_normal((size, 6)).astype(np.float32), allowed, labels


def offset(rng: np.random.Generator, size: int) -> Batch:
    shapes = ((size, 6), (size, 1), (size, 1))
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in shapes)


def pooled(rng: np.random.Generator, size: int) -> Batch:
    x, weights = rng.standard_normal((size, 5, 6)), rng.random((size, 5))
    return x.astype(np.float32), weights.astype(np.float32), rng.integers(0, 3, size).astype(np.int32)


def summed(rng: np.random.Generator, size: int) -> Batch:
    return pooled(rng, size)[::2]


BEHIND_LAYERS = {
    "masked": Case("masked", Masked, momentum, masked, nn.CrossEntropyLoss),
    "offset": Case("offset", Offset, momentum, offset, nn.MSELoss),
    "pooled": Case("pooled", Pooled, momentum, pooled, nn.CrossEntropyLoss),
    "summed": Case("summed", Summed, momentum, summed, nn.CrossEntropyLoss),
}
"""Networks that do something behind their last layer, most of them with an input that reaches no layer."""


def by_hand(prediction: np.ndarray, label: np.ndarray) -> dict[str, float]:
    """The metric that fits, of a prediction."""
    if prediction.shape == label.shape:
        return {"mse": float(((prediction - label) ** 2).mean())}
    return {"accuracy": float((prediction.argmax(1) == label).mean())}
