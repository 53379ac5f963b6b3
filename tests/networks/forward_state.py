"""Networks whose forward part writes state, or whose loss does not depend on every weight as on the others."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from .case import Batch, Case
from .mlp import MLP, classes, cross_entropy, momentum


class HiddenState(nn.Cell):
    """A recurrent state that the next step continues from. MindSpore's backward reads it after forward wrote it."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Dense(8, 16)
        self.again = nn.Dense(16, 16)
        self.output = nn.Dense(16, 4)
        self.hidden = ms.Parameter(ms.Tensor(np.zeros((4, 16), np.float32)), name="hidden", requires_grad=False)

    def construct(self, x):
        hidden = ops.tanh(self.enter(x) + self.again(self.hidden))
        ops.assign(self.hidden, ops.stop_gradient(hidden))
        return self.output(hidden)


class RunningAverage(nn.Cell):
    """Centers its input by a running average, of which it uses the new value."""

    def __init__(self) -> None:
        super().__init__()
        self.network = MLP()
        self.average = ms.Parameter(ms.Tensor(np.zeros(8, np.float32)), name="average", requires_grad=False)

    def construct(self, x):
        ops.assign(self.average, 0.9 * self.average + 0.1 * ops.stop_gradient(x.mean(0)))
        return self.network(x - self.average)


class BranchState(nn.Cell):
    """Normalizes in one branch only: a statistic that a function writes."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Dense(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.output = nn.Dense(16, 4)

    def construct(self, x):
        x = self.enter(x)
        if x.sum() > 0:
            x = self.norm(x)
        else:
            x = ops.tanh(x)
        return self.output(x)


class LoopWeights(nn.Cell):
    """Two layers inside a loop over a tensor's value: recursion, with closures for its backward part."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Dense(8, 16)
        self.one = nn.Dense(16, 16)
        self.two = nn.Dense(16, 16)
        self.output = nn.Dense(16, 4)

    def construct(self, x):
        x = ops.tanh(self.enter(x))
        count = ms.Tensor(0, ms.int32)
        while count < 3:
            x = ops.tanh(self.one(x)) + ops.tanh(self.two(x))
            count = count + 1
        return self.output(x)


class StoppedTarget(nn.Cell):
    """One layer gets no gradient and is none the less in the optimizer, where its weights decay."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.SequentialCell(nn.Dense(8, 16), nn.Tanh(), nn.Dense(16, 8))
        self.target = nn.Dense(8, 8)

    def construct(self, x):
        return ops.reduce_mean(ops.square(self.network(x) - ops.stop_gradient(self.target(x))))


class Regularized(nn.Cell):
    """One weight that only a regularizer sees: its gradient depends on no input."""

    def __init__(self, linear: bool) -> None:
        super().__init__()
        self.network = MLP()
        self.loss = cross_entropy()
        self.apart = ms.Parameter(ms.Tensor(np.ones(5, np.float32)), name="apart")
        self.linear = linear

    def construct(self, x, labels):
        loss = self.loss(self.network(x), labels)
        return loss + (0.1 * self.apart.sum() if self.linear else 0.5 * ops.square(self.apart).sum())


class Experts(nn.Cell):
    """A sparse mixture: the gate's two best experts of each row, gathered and scattered."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Dense(8, 4, has_bias=False)
        self.up = ms.Parameter(ms.Tensor(np.random.randn(4, 8, 16).astype(np.float32) * 0.2), name="up")
        self.down = ms.Parameter(ms.Tensor(np.random.randn(4, 16, 8).astype(np.float32) * 0.2), name="down")
        self.output = nn.Dense(8, 4)

    def construct(self, x):
        gates = ops.softmax(self.gate(x), -1)
        values, chosen = ops.topk(gates, 2)
        mixture = ops.scatter(ops.zeros_like(gates), 1, chosen, values)
        x = ops.matmul(ops.relu(ops.matmul(x.expand_dims(0), self.up)), self.down)
        return self.output((x * mixture.T.expand_dims(-1)).sum(0))


def regularized() -> nn.Cell:
    return Regularized(linear=False)


def linear_penalty() -> nn.Cell:
    return Regularized(linear=True)


def inputs_only(rng: np.random.Generator, size: int) -> Batch:
    return (rng.standard_normal((size, 8)).astype(np.float32),)


def momentum_decay(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.Momentum(parameters, 0.1, 0.9, weight_decay=0.1)


_TAGS = frozenset({"forward_state"})
_APART = frozenset({"no_gradient"})
CASES = [
    Case("hidden_state", HiddenState, momentum, classes, cross_entropy, tags=_TAGS),
    Case("running_average", RunningAverage, momentum, classes, cross_entropy, tags=_TAGS),
    Case("branch_state", BranchState, momentum, classes, cross_entropy, tags=_TAGS),
    Case("loop_weights", LoopWeights, momentum, classes, cross_entropy, tags=frozenset({"control_flow"})),
    Case("experts", Experts, momentum, classes, cross_entropy),
    Case("stopped_target", StoppedTarget, momentum_decay, inputs_only, tags=_APART),
    Case("regularized", regularized, momentum, classes, tags=_APART),
    Case("linear_penalty", linear_penalty, momentum, classes, tags=_APART),
]
