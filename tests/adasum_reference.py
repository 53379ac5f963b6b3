"""AdaSum in numpy, by the formula of the paper, on steps that MindSpore took by itself: the judge of what ranks do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import mindspore as ms
import numpy as np
from mindspore import ops

from tests.native import Accumulate, State, Update, tensors
from tests.networks import CASES, Batch, Case, build, state_of


def pair(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two steps as one: each keeps what the other does not hold already. A step of zero leaves the other as it is."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    dot, aa, bb = (float((x * y).sum()) for x, y in ((a, b), (a, a), (b, b)))
    return (1 - (dot / (2 * aa) if aa else 0)) * a + (1 - (dot / (2 * bb) if bb else 0)) * b


def combine(steps: Sequence[np.ndarray]) -> np.ndarray:
    """The steps of a power of two of groups: the two of each pair, then the pairs of pairs."""
    if len(steps) == 1:
        return steps[0].astype(np.float64)
    half = [pair(a, b) for a, b in zip(steps[::2], steps[1::2], strict=True)]
    return combine(half)


class LocalTraining:
    """MindSpore training one case by itself: what one group of ranks does to its weights in a cycle.

    It serves one group after the other, each from its own state."""

    def __init__(self, case: Case) -> None:
        self.built = build(case)
        self.step = self.built.train_step
        self.weights = [w.name for w in self.built.optimizer.parameters]

    @cached_property
    def halves(self) -> tuple[Accumulate, Update]:
        weights = self.built.optimizer.parameters
        sums, magnitudes = (weights.clone(prefix=prefix, init="zeros") for prefix in ("native_sum", "native_magnitude"))
        accumulate = Accumulate(self.built.loss_network, weights, sums, magnitudes, float(self.step.sens))
        update = Update(self.built.optimizer, sums)
        return accumulate.set_train(), update.set_train()

    def cycle(self, batches: Sequence[Batch]) -> None:
        """One optimizer step, for the mean of the gradients of these batches."""
        if len(batches) == 1:
            self.step(*tensors(batches[0]))
            return
        accumulate, update = self.halves
        for batch in batches:
            accumulate(*tensors(batch))
        update(ms.Tensor(len(batches), ms.float32))

    def state(self) -> State:
        return state_of(self.step)

    def set(self, values: State) -> None:
        for parameter in self.step.get_parameters():
            ops.assign(parameter, ms.Tensor(values[parameter.name]))


def train_groups(
    name: str, cycles: Sequence[Sequence[Sequence[Batch]]], skipped: Sequence[int] = ()
) -> list[list[State]]:
    """Training of several groups of ranks: `cycles[c][g]` holds the batches of group g in cycle c, whose gradients are
    averaged. Returns every state of each group after each cycle. All groups skip the `skipped` cycles."""
    training = LocalTraining(CASES[name])
    groups = [training.state()] * len(cycles[0])
    states: list[list[State]] = []
    for c, of_cycle in enumerate(cycles):
        if c not in skipped:
            old, new = groups[0], []
            for state, batches in zip(groups, of_cycle, strict=True):
                training.set(state)
                training.cycle(batches)
                new.append(training.state())
            combined: State = {}
            for weight in training.weights:
                steps = [old[weight].astype(np.float64) - state[weight] for state in new]
                combined[weight] = (old[weight] - combine(steps)).astype(old[weight].dtype)
            groups = [{**state, **combined} for state in new]
        states.append(groups)
    return states
