"""What MindSpore itself does with a case: plain training and batch accumulation, the references of every comparison.

Each function builds the case anew from its seed, so that all of them start from the state that stands in the exported
file and none shares a parameter with another. Results are remembered (tests/remember.py); `isolated` runs a function
in a process of its own.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from tests.compare import assert_close, assert_equal, compare, noise_mask
from tests.networks import CASES, Batch, Case, build, state_of
from tests.remember import remembered

__all__ = [
    "Accumulated",
    "assert_close",
    "assert_equal",
    "compare",
    "initial_state",
    "isolated",
    "noise_mask",
    "train_accumulated",
    "train_steps",
]

State = dict[str, np.ndarray]
T = TypeVar("T")

_add = ops.MultitypeFuncGraph("add")
_divide = ops.MultitypeFuncGraph("divide")
_clear = ops.MultitypeFuncGraph("clear")


@_add.register("Tensor", "Tensor", "Tensor")
def _add_gradient(accumulated, magnitude, gradient):
    return ops.depend(ops.assign_add(accumulated, gradient), ops.assign_add(magnitude, ops.abs(gradient)))


@_divide.register("Tensor", "Tensor")
def _divide_gradient(divisor, accumulated):
    return accumulated / divisor.astype(accumulated.dtype)


@_clear.register("Tensor")
def _clear_accumulator(accumulated):
    return ops.assign(accumulated, ops.zeros_like(accumulated))


class Accumulate(nn.Cell):
    """One micro-batch: forward, backward, and the gradients added to the accumulators.

    `sens` is the loss scale of the training cell: the gradients are those of the loss times it.
    """

    def __init__(self, network: nn.Cell, weights: ms.ParameterTuple, sums: Any, magnitudes: Any, sens: float) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.network.set_grad()
        self.weights = weights
        self.sums = sums
        self.magnitudes = magnitudes
        self.sens = sens
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)
        self.map = ops.HyperMap()

    def construct(self, *inputs):
        loss = self.network(*inputs)
        gradients = self.grad(self.network, self.weights)(*inputs, ops.fill(loss.dtype, loss.shape, self.sens))
        return ops.depend(loss, self.map(_add, self.sums, self.magnitudes, gradients))


class Update(nn.Cell):
    """The end of a cycle: one optimizer call with the reduced gradients, then empty accumulators."""

    def __init__(self, optimizer: nn.Cell, sums: Any) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer = optimizer
        self.sums = sums
        self.map = ops.HyperMap()

    def construct(self, divisor):
        gradients = self.map(ops.partial(_divide, divisor), self.sums)
        updated = self.optimizer(gradients)
        return ops.depend(self.map(_clear, self.sums), updated)


@dataclass(frozen=True)
class Accumulated:
    """What a run of accumulated training leaves behind; unpacks as `losses, states`.

    `losses[c][m]` is the loss of micro-batch m of cycle c, `states[c]` every parameter by name after cycle c,
    `gradients[c]` the reduced gradient of each weight that the optimizer got in cycle c, and
    `magnitudes` the sum of the absolute micro-batch gradients over the whole run.
    """

    losses: list[list[float]]
    states: list[State]
    gradients: list[State]
    magnitudes: State

    def __iter__(self) -> Any:
        return iter((self.losses, self.states))

    def noise(self, cycles: int | None = None) -> dict[str, np.ndarray]:
        """The mask of elements that have no gradient but rounding noise, judged by the first `cycles` cycles (or all).

        It is what `compare` takes as `noise`.
        """
        return noise_mask(self.gradients[:cycles], self.magnitudes)


def find(case: Case | str) -> Case:
    return CASES[case] if isinstance(case, str) else case


def of_case(case: Case | str, *arguments: Any, **options: Any) -> Any:
    """What a call about a case of the zoo depends on, for `remembered`."""
    case = find(case)
    return (case.name, arguments, options) if CASES.get(case.name) is case else None


def tensors(batch: Batch) -> list[ms.Tensor]:
    return [ms.Tensor(array) for array in batch]


@remembered(of_case)
def initial_state(case: Case | str) -> State:
    """Every parameter of the training cell by name before its first step, as in the exported file."""
    return state_of(build(find(case)).train_step)


@remembered(of_case)
def train_steps(case: Case | str, batches: Sequence[Batch]) -> tuple[list[float], State]:
    """Plain training, one optimizer step a batch: the losses and the state after the last."""
    step = build(find(case)).train_step
    losses = [float(step(*tensors(batch)).asnumpy()) for batch in batches]
    state = state_of(step)
    del step
    gc.collect()
    return losses, state


@remembered(of_case)
def train_accumulated(case: Case | str, cycles: Sequence[Sequence[Batch]], reduction: str = "mean") -> Accumulated:
    """Batch accumulation: one optimizer step a cycle, on the mean (or the sum) of its micro-batches' gradients.

    A short cycle divides by its real number of micro-batches. BatchNorm statistics advance with every micro-batch.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'mean' or 'sum', not {reduction!r}")
    built = build(find(case))
    if type(built.train_step) is not nn.TrainOneStepCell:
        raise ValueError(f"{find(case).name}: {type(built.train_step).__name__} has no native accumulation here")
    weights = built.optimizer.parameters
    sums = weights.clone(prefix="native_sum", init="zeros")
    magnitudes = weights.clone(prefix="native_magnitude", init="zeros")
    accumulate = Accumulate(built.loss_network, weights, sums, magnitudes, float(built.train_step.sens))
    update = Update(built.optimizer, sums)
    for cell in (accumulate, update):
        cell.set_train()
    losses: list[list[float]] = []
    states: list[State] = []
    gradients: list[State] = []
    for cycle in cycles:
        losses.append([float(accumulate(*tensors(batch)).asnumpy().mean()) for batch in cycle])  # of rows, their mean
        divisor = len(cycle) if reduction == "mean" else 1
        gradients.append({w.name: s.asnumpy() / divisor for w, s in zip(weights, sums, strict=True)})
        update(ms.Tensor(divisor, ms.float32))
        states.append(state_of(built.train_step))
    total = {w.name: m.asnumpy().copy() for w, m in zip(weights, magnitudes, strict=True)}
    del accumulate, update, built
    gc.collect()
    return Accumulated(losses, states, gradients, total)


def isolated(function: Callable[..., T], *arguments: Any) -> T:
    """`function(*arguments)` in a fresh process: no parameter, seed or compiled graph is shared with this one.

    Cases must be given by name, since their functions do not travel between processes.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_alone, function, *arguments).result()


def _alone(function: Callable[..., T], *arguments: Any) -> T:
    gc.freeze()  # MindSpore collects garbage before each compilation, and its modules are many objects
    return function(*arguments)
