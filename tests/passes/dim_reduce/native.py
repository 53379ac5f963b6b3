"""What a line search asks of a network, by native MindSpore; and upstream's search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.boost import DimReduce

from tests.networks import CASES, Batch, build, state_of
from tests.passes.dim_reduce.line_search import Values


class Gradients(nn.Cell):
    def __init__(self, network: nn.Cell, weights: ms.ParameterTuple) -> None:
        super().__init__()
        self.network = network
        self.weights = weights
        self.gradient = ops.GradOperation(get_by_list=True)

    def construct(self, *inputs):
        return self.gradient(self.network, self.weights)(*inputs)


class NativeLoss:
    """Loss and gradients of a case's network at any weights."""

    def __init__(self, name: str) -> None:
        built = build(CASES[name])
        self.network = built.loss_network.set_train()
        self.initial = state_of(built.loss_network)
        self.weights = {p.name: p for p in built.loss_network.trainable_params()}
        self.gradients_of = Gradients(self.network, ms.ParameterTuple(self.weights.values()))

    def set(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, value in weights.items():
            self.weights[name].set_data(ms.Tensor(value.astype(np.float32)))

    def loss(self, weights: Mapping[str, np.ndarray], batches: Sequence[Batch]) -> float:
        """The mean over the micro-batches."""
        self.set(weights)
        return float(np.mean([float(self.network(*map(ms.Tensor, batch)).asnumpy()) for batch in batches]))

    def gradients(self, weights: Mapping[str, np.ndarray], batches: Sequence[Batch]) -> Values:
        self.set(weights)
        taken = [[g.asnumpy().astype(np.float64) for g in self.gradients_of(*map(ms.Tensor, b))] for b in batches]
        return {name: np.mean(gs, axis=0) for name, gs in zip(self.weights, zip(*taken, strict=True), strict=True)}


class Upstream(nn.Cell):
    """The training step of ``mindspore.boost.BoostTrainOneStepCell`` with its ``DimReduce``, without reading files."""

    def __init__(self, name: str, start: Mapping[str, np.ndarray], basis: np.ndarray, options: Sequence[float]) -> None:
        super().__init__(auto_prefix=False)
        built = build(CASES[name])
        self.network = built.loss_network.set_train()
        self.weights = ms.ParameterTuple(self.network.trainable_params())
        # Cells rename what they hold.
        self.names = [weight.name for weight in self.weights]
        for weight in self.weights:
            weight.set_data(ms.Tensor(start[weight.name]))
        self.clones = self.weights.clone(prefix="weights_clone", init="same")
        optimizer = nn.SGD(self.weights, learning_rate=1)
        k = len(basis)
        self.search = DimReduce(self.network, optimizer, self.weights, basis, k, *options, 0, 1)
        self.gradient = ops.GradOperation(get_by_list=True)
        self.scale = ms.Tensor(1.0, ms.float32)

    def construct(self, *inputs):
        loss = self.network(*inputs)
        gradients = self.gradient(self.network, self.weights)(*inputs)
        return ops.depend(loss, self.search(loss, gradients, self.scale, self.weights, self.clones, *inputs))
