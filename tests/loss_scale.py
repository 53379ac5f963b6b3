"""Training with a loss scale as MindSpore means it, where no overflow status can be had: the judge of legalization.

MindSpore computes the gradients with the scale as their seed, moves the scale by its own manager and updates by its own
optimizer. Whether they are finite is asked of numpy, on all of them.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from tests.native import State, find, of_case, tensors
from tests.networks import Batch, Case, build, state_of
from tests.remember import remembered


@dataclass(frozen=True)
class ScaledRun:
    """By cycle: the loss of each micro-batch, whether the update was skipped, scale and every parameter after it."""

    initial: State
    losses: list[list[float]]
    skipped: list[bool]
    scales: list[float]
    states: list[State]


class Gradients(nn.Cell):
    """The loss, and the gradients of the loss times the scale."""

    def __init__(self, step: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = step.network
        self.weights = step.weights
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)

    def construct(self, scale, *inputs):
        loss = self.network(*inputs)
        seeds = ops.ones_like(loss) * ops.cast(scale, loss.dtype)
        return loss, self.grad(self.network, self.weights)(*inputs, seeds)


class Unscale(nn.Cell):
    """The mean over micro-batches, by the scale."""

    def construct(self, gradient, scale, count):
        mean = gradient / ops.cast(count, gradient.dtype)
        return mean * ops.cast(ops.reciprocal(scale), gradient.dtype)


class Manage(nn.Cell):
    """Moves the scale, as the training cell does."""

    def __init__(self, step: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.manager = step.loss_scaling_manager
        self.scale = step.scale_sense

    def construct(self, overflow):
        return self.manager(self.scale, overflow)


@remembered(of_case)
def train_scaled(case: Case | str, cycles: Sequence[Sequence[Batch]]) -> ScaledRun:
    """One optimizer step a cycle, on the mean of its micro-batches' gradients, unless one of them is not finite."""
    step = build(find(case)).train_step
    compute = Gradients(step).set_train()
    unscale = Unscale()
    manage = Manage(step) if step.loss_scaling_manager is not None else None
    run = ScaledRun(state_of(step), [], [], [], [])
    for cycle in cycles:
        scale = step.scale_sense.asnumpy().copy()
        losses, total = [], None
        for batch in cycle:
            loss, found = compute(ms.Tensor(scale), *tensors(batch))
            losses.append(float(loss.asnumpy()))
            gradients = [g.asnumpy() for g in found]
            with np.errstate(all="ignore"):
                total = gradients if total is None else [a + b for a, b in zip(total, gradients, strict=True)]
        assert total is not None
        skipped = not all(np.isfinite(g).all() for g in total)
        if not skipped:
            count = ms.Tensor(len(cycle), ms.float32)
            update = tuple(unscale(ms.Tensor(g), ms.Tensor(scale), count) for g in total)
            if hasattr(step, "clip"):
                update = step.clip(update)
            step.optimizer(update)
        if manage is not None:
            manage(ms.Tensor(skipped))
        run.losses.append(losses)
        run.skipped.append(skipped)
        run.scales.append(float(step.scale_sense.asnumpy().item()))
        run.states.append(state_of(step))
    del compute, unscale, manage, step
    gc.collect()
    return run


def spoiled(batches: Sequence[Batch], steps: dict[int, float]) -> list[Batch]:
    """The batches, with the first input of the named ones multiplied by a number that no gradient survives."""
    out = []
    for i, (first, *rest) in enumerate(batches):
        if i in steps:
            with np.errstate(all="ignore"):
                first = first * np.float32(steps[i])
        out.append((first, *rest))
    return out
