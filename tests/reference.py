"""What MindSpore does with gradients between backward and update, composed by hand: the judge of those passes.

MindSpore computes the gradients of every micro-batch, with the loss scale as their seed, and its optimizer makes the
update. What stands between is plain arithmetic on the host, in the order in which it must happen: sum, finite check,
unscale and average, clip, and (inside the optimizer, behind its weight decay) centralize.
"""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from tests.compare import noise_mask
from tests.native import State, find, of_case, tensors
from tests.networks import CASES, Batch, Case, build, state_of
from tests.remember import remembered

__all__ = ["Clip", "Cycle", "LossScale", "Run", "overflowing", "train"]


@dataclass(frozen=True)
class LossScale:
    """Static without a `window`; dynamic: halved by an overflow, doubled after `window` cycles in a row without."""

    value: float
    window: int | None = None
    factor: float = 2.0
    minimum: float = 1.0
    maximum: float = 2.0**24


@dataclass(frozen=True)
class Clip:
    """`by` is "global-norm", "tensor-norm" or "value"."""

    by: str
    limit: float


@dataclass(frozen=True)
class Cycle:
    """One optimizer step, or one that was skipped.

    `losses` has one entry a micro-batch, unscaled; `scale` is the loss scale that the cycle used; `gradients` is the
    averaged, unscaled gradient of each weight before clipping and `norm` the global norm of it, both None where the
    cycle was skipped; `state` is every parameter by name after the cycle.
    """

    losses: list[float]
    scale: float
    skipped: bool
    overflow: bool
    gradients: State | None
    norm: float | None
    state: State


@dataclass(frozen=True)
class Run:
    """`magnitudes` sums the absolute micro-batch gradients of the cycles that updated; `initial` is the first state."""

    initial: State
    cycles: list[Cycle]
    magnitudes: State

    def noise(self, cycles: int | None = None) -> dict[str, np.ndarray]:
        """The mask of elements without a gradient beyond rounding, judged by the first `cycles` cycles (or all)."""
        updates = [c.gradients for c in self.cycles[:cycles] if c.gradients is not None]
        return noise_mask(updates, self.magnitudes)


class Backward(nn.Cell):
    """One micro-batch: its loss, and the gradients of the loss times `scale`."""

    def __init__(self, network: nn.Cell, weights: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.network.set_grad()
        self.weights = weights
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)

    def construct(self, scale, *inputs):
        loss = self.network(*inputs)
        seed = ops.ones_like(loss) * scale.astype(loss.dtype)
        return loss, self.grad(self.network, self.weights)(*inputs, seed)


class Cells:
    """The cells of a case on a device, which MindSpore compiles when they are first called: they serve any composition.

    `centered_before` are the weights whose gradient must be centered before the optimizer gets it.
    """

    def __init__(self, case: Case, centralize: frozenset[str], device: str = "CPU") -> None:
        built = build(case, device)
        self.step: Any = built.train_step
        if type(self.step) is not nn.TrainOneStepCell or self.step.sens != 1.0:
            raise ValueError(f"{case.name}: only a plain TrainOneStepCell can be composed here")
        self.initial = state_of(self.step)
        self.optimizer = built.optimizer
        self.weights = self.optimizer.parameters
        unknown = centralize - {w.name for w in self.weights}
        if unknown:
            raise ValueError(f"no such weights: {sorted(unknown)}")
        self.centered_before: frozenset[str] = frozenset()
        if centralize and centralizes(self.optimizer):
            centralize_behind_decay(self.optimizer, centralize)
        else:
            self.centered_before = centralize
        self.backward = Backward(built.loss_network, self.weights).set_train()

    def start_anew(self) -> None:
        """Every parameter gets the value that it was built with."""
        for parameter in self.step.get_parameters():
            # After set_data, a compiled graph with a loop goes on with the old value.
            ops.assign(parameter, ms.Tensor(self.initial[parameter.name]))


@functools.lru_cache(maxsize=3)
def of_zoo(name: str, centralize: frozenset[str]) -> Cells:
    """The few that were asked for last: what a cell has compiled takes memory for as long as it lives."""
    gc.collect()
    return Cells(CASES[name], centralize)


@remembered(of_case)
def train(
    case: Case | str,
    cycles: Sequence[Sequence[Batch]],
    *,
    loss_scale: LossScale | None = None,
    overflow: str | None = None,
    clip: Clip | None = None,
    centralize: Collection[str] = (),
    weight: Callable[[Batch], float] | None = None,
    cells: Cells | None = None,
) -> Run:
    """Trains a case, one optimizer step a cycle.

    `overflow` is None (no check), "skip-cycle" or "skip-micro"; `centralize` names the weights whose gradient loses its
    mean over all axes but the first; `weight(batch)` makes the mean over micro-batches a weighted one. `cells` are
    those of this case and these weights, where they are at hand.
    """
    if loss_scale and loss_scale.window and not overflow:
        raise ValueError("a dynamic loss scale needs the overflow check")
    case = find(case)
    known = CASES.get(case.name) is case
    if cells is None:
        cells = of_zoo(case.name, frozenset(centralize)) if known else Cells(case, frozenset(centralize))
    cells.start_anew()
    backward, optimizer, weights = cells.backward, cells.optimizer, cells.weights
    names = [w.name for w in weights]
    magnitudes = {w.name: np.zeros(w.shape, np.float32) for w in weights}
    scale = loss_scale.value if loss_scale else 1.0
    clean = 0
    done: list[Cycle] = []
    for cycle in cycles:
        losses: list[float] = []
        sums = [np.zeros(w.shape, np.float32) for w in weights]
        absolute = [np.zeros(w.shape, np.float32) for w in weights]
        divisor, valid, overflowed = np.float32(0), 0, False
        for batch in cycle:
            loss, gradients = backward(ms.Tensor(scale, ms.float32), *tensors(batch))
            losses.append(float(loss.asnumpy()))
            dtypes = [g.dtype for g in gradients]
            arrays = [g.asnumpy().astype(np.float32) for g in gradients]
            finite = all(np.isfinite(a).all() for a in arrays)
            overflowed |= not finite
            if overflow == "skip-micro" and not finite:
                continue
            valid += 1
            share = np.float32(weight(batch)) if weight else np.float32(1)
            divisor += share
            with np.errstate(invalid="ignore", over="ignore"):
                sums = [s + share * a for s, a in zip(sums, arrays, strict=True)]
                absolute = [m + np.abs(a) for m, a in zip(absolute, arrays, strict=True)]
        overflowed |= not all(np.isfinite(s).all() for s in sums)
        skipped = bool(overflow) and (not valid or not all(np.isfinite(s).all() for s in sums))
        reduced: State | None = None
        norm: float | None = None
        if not skipped:
            averaged = [s / divisor / np.float32(scale) for s in sums]
            reduced = dict(zip(names, averaged, strict=True))
            norm = float(np.sqrt(sum(np.square(a, dtype=np.float64).sum() for a in averaged)))
            for name, part in zip(names, absolute, strict=True):
                magnitudes[name] += part
            clear = zip(names, clipped(averaged, clip), strict=True)
            ready = [centered(a) if name in cells.centered_before else a for name, a in clear]
            optimizer(tuple(ms.Tensor(a).astype(d) for a, d in zip(ready, dtypes, strict=True)))
        done.append(Cycle(losses, scale, skipped, overflowed, reduced, norm, state_of(cells.step)))
        if loss_scale and loss_scale.window:
            scale, clean = next_scale(loss_scale, scale, clean, overflowed)
    return Run(cells.initial, done, magnitudes)


def next_scale(rule: LossScale, scale: float, clean: int, overflow: bool) -> tuple[float, int]:
    """The scale and the count of clean cycles after a cycle: MindSpore's DynamicLossScaleUpdateCell, with bounds."""
    assert rule.window is not None
    if overflow:
        return max(scale / rule.factor, rule.minimum), 0
    if clean + 1 >= rule.window:
        return min(scale * rule.factor, rule.maximum), 0
    return scale, clean + 1


def clipped(gradients: list[np.ndarray], clip: Clip | None) -> list[np.ndarray]:
    if clip is None:
        return gradients
    if clip.by == "global-norm":
        return [t.asnumpy() for t in ops.clip_by_global_norm(tuple(map(ms.Tensor, gradients)), clip.limit)]
    if clip.by == "value":
        return [np.clip(g, np.float32(-clip.limit), np.float32(clip.limit)) for g in gradients]
    norms = [np.sqrt(np.square(g, dtype=np.float64).sum()) for g in gradients]
    return [g * np.float32(clip.limit / max(n, clip.limit)) for g, n in zip(gradients, norms, strict=True)]


def centered(gradient: np.ndarray) -> np.ndarray:
    return gradient - gradient.mean(axis=tuple(range(1, gradient.ndim)), keepdims=True, dtype=np.float32)


def centralizes(optimizer: nn.Cell) -> bool:
    """Whether the optimizer has a place for centralization: those without one do not decay the gradient either."""
    return "self.gradients_centralization(" in inspect.getsource(type(optimizer))


def centralize_behind_decay(optimizer: Any, names: Collection[str]) -> None:
    """Puts centralization where MindSpore's optimizers have it, without its Centralization primitive."""

    class Centralized(type(optimizer)):  # type: ignore[misc]
        def gradients_centralization(self, gradients):
            result = ()
            for flag, gradient in zip(self.flags, gradients):  # noqa: B905 (graph mode knows no strict)
                if flag:
                    axes = tuple(range(1, gradient.ndim))
                    gradient = gradient - gradient.mean(axes, keep_dims=True)
                result += (gradient,)
            return result

    optimizer.flags = tuple(p.name in names for p in optimizer.parameters)
    optimizer.__class__ = Centralized


def overflowing(batch: Batch, value: float = np.inf) -> Batch:
    """The same batch with `value` throughout its first floating input, so that gradients are not finite."""
    floating = next(i for i, array in enumerate(batch) if array.dtype.kind == "f")
    return (*batch[:floating], np.full_like(batch[floating], value), *batch[floating + 1 :])
