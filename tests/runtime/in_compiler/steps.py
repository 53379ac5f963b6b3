"""Training steps as scripts write them, for each door of bc.enable, and the data that they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops

MICRO = 5
RNG = np.random.default_rng(3)
X = RNG.standard_normal((8, MICRO, 4)).astype(np.float32)
Y = RNG.integers(0, 3, (8, MICRO)).astype(np.int32)


def network(prefix: str = "") -> nn.Cell:
    """A small network, the same every time."""
    ms.set_seed(1)
    np.random.seed(1)
    cell = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 3))
    if prefix:
        cell.update_parameters_name(prefix)
    return cell


def loss_function() -> nn.Cell:
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")


def momentum(weights: list[ms.Parameter]) -> nn.Cell:
    return nn.Momentum(weights, 0.1, 0.9)


def cell_step(net: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
    """The training cell of MindSpore, for graph mode."""
    return nn.TrainOneStepCell(nn.WithLossCell(net, loss_function()), optimizer).set_train()


def function_step(net: nn.Cell, optimizer: nn.Cell) -> Callable[..., Any]:
    """A function under @ms.jit, as MindSpore's quickstart writes it, for PyNative mode."""

    def forward(x, y):
        logits = net(x)
        return ops.cross_entropy(logits, y), logits

    gradients_of = ms.value_and_grad(forward, None, list(optimizer.parameters), has_aux=True)

    @ms.jit
    def step(x, y):
        (loss, _), gradients = gradients_of(x, y)
        optimizer(gradients)
        return loss

    return step


class Compiled(nn.Cell):
    """A Cell whose construct is under @ms.jit, for PyNative mode."""

    def __init__(self, net: nn.Cell, optimizer: nn.Cell):
        super().__init__(auto_prefix=False)
        self.network = nn.WithLossCell(net, loss_function())
        self.optimizer = optimizer
        self.gradients_of = ops.GradOperation(get_by_list=True)
        self.weights = optimizer.parameters

    @ms.jit
    def construct(self, x, y):
        loss = self.network(x, y)
        gradients = self.gradients_of(self.network, self.weights)(x, y)
        return ops.depend(loss, self.optimizer(gradients))


def compiled_step(net: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
    return Compiled(net, optimizer).set_train()


def adamw(weights: list[ms.Parameter]) -> Any:
    from mindspore.experimental.optim import AdamW

    return AdamW(weights, lr=0.01)


def mint_adam(weights: list[ms.Parameter]) -> Any:
    return mint.optim.Adam(weights, lr=0.01)


def big_batches(steps: int = 4) -> list[tuple[Tensor, Tensor]]:
    """The same data, the micro-batches of a window in one."""
    return [
        (Tensor(X[i : i + steps].reshape(-1, 4)), Tensor(Y[i : i + steps].reshape(-1))) for i in range(0, len(X), steps)
    ]


def micro_batches() -> list[tuple[Tensor, Tensor]]:
    return [(Tensor(x), Tensor(y)) for x, y in zip(X, Y, strict=True)]


def values(cell: nn.Cell) -> dict[str, np.ndarray]:
    return {p.name: p.asnumpy().copy() for p in cell.get_parameters()}


def worst(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The largest difference of a Parameter, by its largest number."""
    assert one.keys() == other.keys()
    return max(float(np.abs(one[k] - other[k]).max() / max(np.abs(other[k]).max(), 1e-30)) for k in other)
