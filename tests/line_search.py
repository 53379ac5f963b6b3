"""The formulas of passes/dim_reduce/subspace.py in numpy, in float64, on losses and gradients of native MindSpore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.boost import DimReduce

from tests.networks import CASES, Batch, build, state_of

Values = dict[str, np.ndarray]


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


@dataclass
class Iteration:
    """What one cycle computed. ``losses`` are those of its trials; ``bounds`` what each had to be less than."""

    g: np.ndarray
    d: np.ndarray
    base: float
    losses: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    accepted: bool = False
    length: float = 0.0


class Reference:
    """Upstream's algorithm, one ``step`` a cycle."""

    def __init__(
        self, native: NativeLoss, weights: Mapping[str, np.ndarray], basis: np.ndarray,
        rho: float, gamma: float, alpha: float, sigma: float, max_trials: int,
    ) -> None:  # fmt: skip
        self.native = native
        self.shapes = {name: value.shape for name, value in weights.items()}
        self.w = self.flat(weights)
        self.P = basis.astype(np.float64)
        self.rho, self.gamma, self.alpha, self.sigma, self.max_trials = rho, gamma, alpha, sigma, max_trials
        k = len(basis)
        self.r = np.zeros_like(self.w)
        self.B = np.eye(k)
        self.s = np.zeros(k)
        self.g_last = np.zeros(k)

    def flat(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([values[name].astype(np.float64).reshape(-1) for name in self.shapes])

    def split(self, flat: np.ndarray) -> Values:
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])
        parts = np.split(flat, ends[:-1])
        return {name: part.reshape(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def step(self, batches: Sequence[Batch]) -> Iteration:
        gradient = self.flat(self.native.gradients(self.split(self.w), batches))
        base = self.native.loss(self.split(self.w), batches)
        g = self.P @ gradient
        B = self.B
        y = g - self.g_last
        if y @ self.s > 1e-20:
            p = 1 / (y @ self.s)
            T = np.eye(len(g)) - p * np.outer(y, self.s)
            B = T.T @ B @ T + p * np.outer(self.s, self.s)
        d = -B @ g
        self.r = self.gamma * self.r + gradient - self.P.T @ g
        seen = Iteration(g, d, base)
        for m in range(self.max_trials):
            length = self.rho**m
            seen.losses.append(self.native.loss(self.split(self.w + length * (self.P.T @ d)), batches))
            seen.bounds.append(base + self.sigma * length * (g @ d))
            if seen.losses[-1] < seen.bounds[-1]:
                seen.accepted, seen.length = True, length
                self.s, self.B, self.g_last = length * d, B, g
                break
        self.w = self.w - (self.alpha * self.r - seen.length * (self.P.T @ d))
        return seen


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
