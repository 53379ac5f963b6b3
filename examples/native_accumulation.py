"""Batch accumulation in MindSpore alone, on LeNet-5: what a compiled program is compared with.

The gradients of the micro-batches of a window are added up and divided by their number, then the optimizer runs once.
The tutorial's learning rate of 0.01 is for batches of 32; a window of four is a batch of 128, for which it must grow in
proportion (Goyal et al., 2017): 0.04, rounded up to 0.05.

    python examples/native_accumulation.py
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import digits
import mindspore as ms
import numpy as np
from lenet import accuracy, training_cell
from mindspore import nn, ops

_add = ops.MultitypeFuncGraph("add")
_mean = ops.MultitypeFuncGraph("mean")
_clear = ops.MultitypeFuncGraph("clear")


@_add.register("Tensor", "Tensor")
def _add_gradient(accumulator, gradient):
    return ops.assign_add(accumulator, gradient)


@_mean.register("Tensor", "Tensor")
def _mean_gradient(count, accumulator):
    return accumulator / count


@_clear.register("Tensor")
def _clear_accumulator(accumulator):
    return ops.assign(accumulator, ops.zeros_like(accumulator))


class Accumulate(nn.Cell):
    """Forward and backward of one micro-batch; adds the gradients up and returns the loss."""

    def __init__(self, network: nn.Cell, weights: ms.ParameterTuple, accumulators: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.weights = weights
        self.accumulators = accumulators
        self.forward_backward = ops.value_and_grad(network, None, weights)
        self.map = ops.HyperMap()

    def construct(self, images, labels):
        loss, gradients = self.forward_backward(images, labels)
        return ops.depend(loss, self.map(_add, self.accumulators, gradients))


class Update(nn.Cell):
    """One optimizer step with the mean gradients, then empty accumulators."""

    def __init__(self, optimizer: nn.Cell, accumulators: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer = optimizer
        self.accumulators = accumulators
        self.map = ops.HyperMap()

    def construct(self, count):
        updated = self.optimizer(self.map(ops.partial(_mean, count), self.accumulators))
        return ops.depend(self.map(_clear, self.accumulators), updated)


def train(
    images: np.ndarray,
    labels: np.ndarray,
    batches: Sequence[np.ndarray],
    accumulate: int = 4,
    learning_rate: float = 0.01,
    momentum: float = 0.9,
    seed: int = 1,
) -> tuple[list[float], dict[str, np.ndarray]]:
    """Trains on `batches` (arrays of places in `images`, see `digits.order`), one optimizer step every `accumulate`.

    Returns the loss of every micro-batch and the final state by name. A short last window divides by its own count.
    """
    cell = training_cell(learning_rate, momentum, seed)
    accumulators = cell.optimizer.parameters.clone(prefix="accumulated", init="zeros")
    step = Accumulate(cell.network, cell.optimizer.parameters, accumulators)
    update = Update(cell.optimizer, accumulators)
    losses = []
    for start in range(0, len(batches), accumulate):
        window = batches[start : start + accumulate]
        losses += [float(step(ms.Tensor(images[places]), ms.Tensor(labels[places]))) for places in window]
        update(ms.Tensor(len(window), ms.float32))
    return losses, {parameter.name: parameter.asnumpy().copy() for parameter in cell.get_parameters()}


def main(epochs: int = 5, accumulate: int = 4, batch_size: int = 32, learning_rate: float = 0.05) -> None:
    data = digits.load()
    batches = digits.order(len(data.train_labels), batch_size, epochs)
    start = time.perf_counter()
    losses, state = train(data.train_images, data.train_labels, batches, accumulate, learning_rate)
    seconds = time.perf_counter() - start
    an_epoch = len(batches) // epochs
    for epoch in range(epochs):
        print(f"epoch {epoch + 1:2}: mean loss {np.mean(losses[epoch * an_epoch : (epoch + 1) * an_epoch]):.4f}")
    share = accuracy(state, data.test_images, data.test_labels)
    print(f"{share:.1%} of {len(data.test_labels)} held-out digits right after {epochs} epochs in {seconds:.1f} s")


if __name__ == "__main__":
    main()
