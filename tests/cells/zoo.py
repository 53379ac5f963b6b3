"""Training cells of the shapes that people write: tutorials, model libraries, functional steps.

Each is a small network of its own, so that what differs is the training cell alone: where the loss, the check of the
gradients and the optimizer stand, and what is returned in which order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.nn.wrap.loss_scale import _grad_scale as unscale

Batch = tuple[np.ndarray, ...]
Export = Callable[[str], Path]


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Dense(6, 8)
        self.output = nn.Dense(8, 3)
        self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")

    def logits(self, x):
        return self.output(ops.tanh(self.hidden(x)))

    def construct(self, x, labels):
        return self.loss(self.logits(x), labels)


class Net3(Net):
    def construct(self, x, mask, labels):
        return self.loss(self.logits(x * mask), labels)


class Net5(Net):
    def construct(self, x, mask, shift, factor, labels):
        return self.loss(self.logits(x * mask + shift) * factor, labels)


def finite(gradients):
    result = ops.isfinite(gradients[0]).all()
    for gradient in gradients[1:]:
        result = ops.logical_and(result, ops.isfinite(gradient).all())
    return result


_clip = ops.MultitypeFuncGraph("clip")


@_clip.register("Number", "Tensor")
def _clip_one(limit, gradient):
    return ops.clip_by_value(gradient, -limit, limit)


class Scaled(nn.TrainOneStepWithLossScaleCell):
    """Asks for overflows by IsFinite: the base's own question has no kernel on a CPU."""

    def __init__(self, network, optimizer):
        super().__init__(network, optimizer, nn.DynamicLossScaleUpdateCell(2.0**10, 2, 3))

    def get_overflow_status(self, status, compute_output):
        return ops.logical_not(finite(compute_output))

    def scaled_gradients(self, loss, scale, inputs):
        seeds = ops.ones_like(loss) * ops.cast(scale, loss.dtype)
        gradients = self.grad(self.network, self.weights)(*inputs, seeds)
        return self.grad_reducer(self.hyper_map(ops.partial(unscale, scale), gradients))


class Tutorial(Scaled):
    """Checks, clips by value, `if not overflow`, several results: the tutorial on customised training."""

    def construct(self, *inputs):
        loss = self.network(*inputs)
        status, scale = self.start_overflow_check(loss, self.scale_sense)
        gradients = self.scaled_gradients(loss, scale, inputs)
        condition = self.get_overflow_status(status, gradients)
        gradients = self.hyper_map(ops.partial(_clip, 0.05), gradients)
        overflow = self.process_loss_scale(condition)
        if not overflow:
            self.optimizer(gradients)
        return loss, overflow, scale


class ClippedFirst(Scaled):
    """Asks after clipping by value, which hides what it asks for."""

    def construct(self, *inputs):
        loss = self.network(*inputs)
        gradients = self.scaled_gradients(loss, self.scale_sense, inputs)
        gradients = self.hyper_map(ops.partial(_clip, 0.05), gradients)
        overflow = self.process_loss_scale(self.get_overflow_status(None, gradients))
        if not overflow:
            self.optimizer(gradients)
        return loss, overflow, self.scale_sense


class TutorialStatus(Tutorial):
    """The same with the question as this machine exports it: a status that no CPU has."""

    def get_overflow_status(self, status, compute_output):
        return self._get_ascend_overflow_status_on_saturation_mode(status, compute_output)


class Depended(Scaled):
    def construct(self, *inputs):
        loss = self.network(*inputs)
        gradients = self.scaled_gradients(loss, self.scale_sense, inputs)
        overflow = self.process_loss_scale(self.get_overflow_status(None, gradients))
        if not overflow:
            loss = ops.depend(loss, self.optimizer(gradients))
        return loss, overflow, self.scale_sense


class Succeeded(Scaled):
    """`succ` from either branch, which the results wait for."""

    def construct(self, *inputs):
        loss = self.network(*inputs)
        gradients = self.scaled_gradients(loss, self.scale_sense, inputs)
        condition = self.get_overflow_status(None, gradients)
        overflow = self.process_loss_scale(condition)
        if overflow:
            success = False
        else:
            success = self.optimizer(gradients)
        return ops.depend((loss, condition, self.scale_sense), success)


class SuccessOut(Scaled):
    """`succ` among the results, as a value."""

    def construct(self, *inputs):
        loss = self.network(*inputs)
        gradients = self.scaled_gradients(loss, self.scale_sense, inputs)
        overflow = self.process_loss_scale(self.get_overflow_status(None, gradients))
        success = ms.Tensor(False, ms.bool_)
        if overflow:
            success = ms.Tensor(False, ms.bool_)
        else:
            success = ops.depend(ms.Tensor(True, ms.bool_), self.optimizer(gradients))
        return loss, success, overflow


class SuccessLast(Scaled):
    def construct(self, *inputs):
        loss = self.network(*inputs)
        gradients = self.scaled_gradients(loss, self.scale_sense, inputs)
        overflow = self.process_loss_scale(self.get_overflow_status(None, gradients))
        success = False
        if overflow:
            success = False
        else:
            success = self.optimizer(gradients)
        return loss, overflow, success


class LossLast(Scaled):
    """The loss is the last of the results: the first is another value."""

    def construct(self, *inputs):
        loss = self.network(*inputs)
        gradients = self.scaled_gradients(loss, self.scale_sense, inputs)
        overflow = self.process_loss_scale(self.get_overflow_status(None, gradients))
        if not overflow:
            self.optimizer(gradients)
        return overflow, self.scale_sense, loss


class Nested(Scaled):
    def construct(self, *inputs):
        loss = self.network(*inputs)
        gradients = self.scaled_gradients(loss, self.scale_sense, inputs)
        overflow = self.process_loss_scale(self.get_overflow_status(None, gradients))
        if not overflow:
            self.optimizer(gradients)
        return loss, (overflow, self.scale_sense)


class NoLoss(nn.TrainOneStepCell):
    def construct(self, *inputs):
        loss = self.network(*inputs)
        gradients = self.grad(self.network, self.weights)(*inputs, ops.ones_like(loss))
        return self.optimizer(gradients)


class Functional(nn.Cell):
    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.optimizer = optimizer
        self.weights = ms.ParameterTuple(network.trainable_params())
        self.gradients = ms.value_and_grad(network, None, self.weights)


class Updated(Functional):
    """What the optimizer returns stands among the results."""

    def construct(self, x, labels):
        loss, gradients = self.gradients(x, labels)
        return loss, self.optimizer(gradients)


class NoLossFunctional(Functional):
    def construct(self, x, labels):
        _, gradients = self.gradients(x, labels)
        return self.optimizer(gradients)


class NoLossGrad(nn.Cell):
    """Gradients alone: no value is asked for."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.optimizer = optimizer
        self.gradients = ops.GradOperation(get_by_list=True)(network, ms.ParameterTuple(network.trainable_params()))

    def construct(self, x, labels):
        return self.optimizer(self.gradients(x, labels))


class NoLossTrue(Functional):
    def construct(self, x, labels):
        _, gradients = self.gradients(x, labels)
        self.optimizer(gradients)
        return True


class NoLossFiltered(Functional):
    """Skips by itself; what is returned says whether."""

    def construct(self, x, labels):
        _, gradients = self.gradients(x, labels)
        fine = finite(gradients)
        if fine:
            self.optimizer(gradients)
        return fine


class YoloStep(nn.Cell):
    """The loss is unscaled after the branch that updates; components, gradients and the flag are returned too."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.optimizer = optimizer
        self.scale = ms.Parameter(ms.Tensor(1024.0, ms.float32), name="scale", requires_grad=False)
        self.gradients = ms.value_and_grad(self.forward, None, self.optimizer.parameters, has_aux=True)

    def forward(self, x, labels):
        loss = self.network(x, labels)
        return loss * self.scale, ops.stop_gradient(ops.stack((loss, 2 * loss)))

    def construct(self, x, labels):
        (loss, items), gradients = self.gradients(x, labels)
        scaled = ()
        for gradient in gradients:
            scaled = (*scaled, gradient / self.scale)
        fine = finite(scaled)
        if fine:
            loss = ops.depend(loss, self.optimizer(scaled))
        return loss / self.scale, items, fine


class YoloGradients(YoloStep):
    def construct(self, x, labels):
        (loss, items), gradients = self.gradients(x, labels)
        scaled = ()
        for gradient in gradients:
            scaled = (*scaled, gradient / self.scale)
        fine = finite(scaled)
        if fine:
            loss = ops.depend(loss, self.optimizer(scaled))
        return loss / self.scale, items, scaled, fine


class YoloElse(YoloStep):
    """Updates in either branch."""

    def construct(self, x, labels):
        (loss, items), gradients = self.gradients(x, labels)
        scaled = ()
        for gradient in gradients:
            scaled = (*scaled, gradient / self.scale)
        if finite(scaled):
            loss = ops.depend(loss, self.optimizer(scaled))
        else:
            loss = ops.depend(loss, self.optimizer(gradients))
        return loss / self.scale, items


class YoloBare(YoloStep):
    def construct(self, x, labels):
        (loss, _), gradients = self.gradients(x, labels)
        scaled = ()
        for gradient in gradients:
            scaled = (*scaled, gradient / self.scale)
        if finite(scaled):
            self.optimizer(scaled)
        return loss / self.scale


class Aux(Functional):
    """has_aux, and a loss that waits for the optimizer."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.gradients = ms.value_and_grad(self.forward, None, self.weights, has_aux=True)

    def forward(self, x, labels):
        logits = self.network.logits(x)
        return self.network.loss(logits, labels), logits

    def construct(self, x, labels):
        (loss, logits), gradients = self.gradients(x, labels)
        loss = ops.depend(loss, self.optimizer(gradients))
        return loss, logits


class AuxFirst(Aux):
    def construct(self, x, labels):
        (loss, logits), gradients = self.gradients(x, labels)
        if finite(gradients):
            self.optimizer(gradients)
        return loss * 2.0, logits


class LossOfBranches(Aux):
    """What it returns as the loss is computed in each branch in another way, and its predictions stand behind it."""

    def construct(self, x, labels):
        (loss, logits), gradients = self.gradients(x, labels)
        if finite(gradients):
            self.optimizer(gradients)
            shown = loss * 2.0
        else:
            shown = ops.zeros_like(loss)
        return shown, logits


class Amp(Functional):
    """The functional tutorial on mixed precision: unscales in the branch, adjusts its scale after it."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.scale = ms.Parameter(ms.Tensor(1024.0, ms.float32), name="scale", requires_grad=False)
        self.gradients = ms.value_and_grad(self.forward, None, self.weights, has_aux=True)

    def forward(self, x, labels):
        logits = self.network.logits(x)
        return self.network.loss(logits, labels) * self.scale, logits

    def construct(self, x, labels):
        (loss, logits), gradients = self.gradients(x, labels)
        loss = loss / self.scale
        fine = finite(gradients)
        if fine:
            scaled = ()
            for gradient in gradients:
                scaled = (*scaled, gradient / self.scale)
            loss = ops.depend(loss, self.optimizer(scaled))
        ops.assign(self.scale, ops.select(fine, self.scale, self.scale / 2.0))
        return loss, logits


class Norms(Scaled):
    """Clips by the global norm, keeps an average of the weights in the branch, returns rate and norm."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.average = self.weights.clone("average", "same")
        self.rate = optimizer.learning_rate

    def construct(self, *inputs):
        loss = self.network(*inputs)
        gradients = self.scaled_gradients(loss, self.scale_sense, inputs)
        norm = ms.Tensor(0.0, ms.float32)
        for gradient in gradients:
            norm = norm + ops.square(gradient).sum()
        norm = ops.sqrt(norm)
        overflow = self.process_loss_scale(self.get_overflow_status(None, gradients))
        if not overflow:
            loss = ops.depend(loss, self.optimizer(ops.clip_by_global_norm(gradients, 0.3)))
            for average, weight in zip(self.average, self.weights):  # noqa: B905 (graph mode knows no strict)
                loss = ops.depend(loss, ops.assign(average, 0.75 * average + 0.25 * weight))
        return loss, overflow, self.scale_sense, self.rate, norm


class Own(Functional):
    """Accumulates by itself over four calls."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.sums = self.weights.clone("sum", "zeros")
        self.count = ms.Parameter(ms.Tensor(0, ms.int32), name="count", requires_grad=False)

    def construct(self, x, labels):
        loss, gradients = self.gradients(x, labels)
        for total, gradient in zip(self.sums, gradients):  # noqa: B905
            loss = ops.depend(loss, ops.assign_add(total, gradient / 4))
        loss = ops.depend(loss, ops.assign_add(self.count, 1))
        if self.count % 4 == 0:
            loss = ops.depend(loss, self.optimizer(self.sums))
            for total in self.sums:
                loss = ops.depend(loss, ops.assign(total, ops.zeros_like(total)))
        return loss


_add = ops.MultitypeFuncGraph("add")
_zero = ops.MultitypeFuncGraph("zero")


@_add.register("Tensor", "Tensor")
def _add_one(total, gradient):
    return ops.assign_add(total, gradient)


@_zero.register("Tensor")
def _zero_one(total):
    return ops.assign(total, ops.zeros_like(total))


class OwnMapped(Functional):
    """As the tutorial on accumulation: HyperMap, the optimizer in a branch, sums that are never divided."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.sums = self.weights.clone("sum", "zeros")
        self.zeros = self.weights.clone("zeros", "zeros")
        self.count = ms.Parameter(ms.Tensor(1, ms.int32), name="count", requires_grad=False)
        self.map = ops.HyperMap()

    def construct(self, x, labels):
        loss, gradients = self.gradients(x, labels)
        self.map(_add, self.sums, gradients)
        if self.count % 2 == 0:
            self.optimizer(self.sums)
            self.map(_zero, self.sums)
        ops.assign_add(self.count, 1)
        return loss


class OwnScaled(Scaled):
    """Loss scale and accumulation in one, as in document recognition: the loss waits for all of it."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.sums = optimizer.parameters.clone("accum", "zeros")
        self.count = ms.Parameter(ms.Tensor(0, ms.int32), name="count", requires_grad=False)
        self.map = ops.HyperMap()

    def construct(self, *inputs):
        loss = self.network(*inputs)
        gradients = self.scaled_gradients(loss, self.scale_sense, inputs)
        overflow = self.process_loss_scale(self.get_overflow_status(None, gradients))
        if not overflow:
            loss = ops.depend(loss, self.map(_add, self.sums, gradients))
            loss = ops.depend(loss, ops.assign_add(self.count, 1))
            if self.count % 2 == 0:
                loss = ops.depend(loss, self.optimizer(self.sums))
                loss = ops.depend(loss, self.map(_zero, self.sums))
        return loss, overflow, self.scale_sense


class Constant(nn.Cell):
    """A cell that updates by a gradient that is no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = ms.Parameter(np.ones((3,), np.float32), name="weight")
        self.slot = ms.Parameter(np.zeros((3,), np.float32), name="slot")
        self.gradient = ms.Tensor(np.ones((3,), np.float32))
        self.apply = ops.ApplyMomentum()

    def construct(self, x):
        self.apply(self.weight, self.slot, 0.1, self.gradient, 0.9)
        return x.sum()


class Given(Constant):
    """Its gradient is an input: as MindSpore tests the kernel alone."""

    def construct(self, gradient):
        return self.apply(self.weight, self.slot, 0.1, gradient, 0.9)


class Table(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingLookup(10, 4, sparse=True)
        self.output = nn.Dense(4, 3)
        self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")

    def construct(self, tokens, labels):
        return self.loss(self.output(self.table(tokens).mean(1)), labels)


class SensInput(nn.Cell):
    """The scale is an input of the cell, as in cells of older model libraries."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.network.set_grad()
        self.weights = optimizer.parameters
        self.optimizer = optimizer
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)

    def construct(self, x, labels, sens):
        loss = self.network(x, labels)
        gradients = self.grad(self.network, self.weights)(x, labels, sens)
        scaled = ()
        for gradient in gradients:
            scaled = (*scaled, gradient / sens)
        return ops.depend(loss, self.optimizer(scaled))


class WithoutSens(Functional):
    """Its gradient function waits for a sens that it is not given."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)

    def construct(self, x, labels):
        gradients = self.grad(self.network, self.weights)(x, labels)
        return ops.depend(self.network(x, labels), self.optimizer(gradients))


def momentum(parameters):
    return nn.Momentum(parameters, 0.1, 0.9)


def adam(parameters):
    return nn.Adam(parameters, 0.01)


def adam_weight_decay(parameters):
    """Returns a True for each parameter, and MindSpore knows all of them when it compiles."""
    return nn.AdamWeightDecay(parameters, 0.01)


def lazy_adam(parameters):
    return nn.LazyAdam(parameters, 0.01)


def arrays(rng: np.random.Generator) -> Batch:
    return rng.standard_normal((4, 6)).astype(np.float32), rng.integers(0, 3, 4).astype(np.int32)


def three(rng: np.random.Generator) -> Batch:
    x, labels = arrays(rng)
    return x, rng.uniform(0.5, 1.5, (4, 6)).astype(np.float32), labels


def five(rng: np.random.Generator) -> Batch:
    x, mask, labels = three(rng)
    shift, factor = rng.uniform(-1, 1, (4, 6)).astype(np.float32), rng.uniform(0.5, 1.5, (4, 1)).astype(np.float32)
    return x, mask, shift, factor, labels


def scaled(rng: np.random.Generator) -> Batch:
    return (*arrays(rng), np.array(4.0, np.float32))


def tokens(rng: np.random.Generator) -> Batch:
    return rng.integers(0, 10, (4, 5)).astype(np.int32), rng.integers(0, 3, 4).astype(np.int32)


def vector(rng: np.random.Generator) -> Batch:
    return (rng.standard_normal(3).astype(np.float32),)


@dataclass(frozen=True)
class Shape:
    """One training cell. ``loss``: where it stands among the results, None where the cell returns none; ``checks``:
    whether it skips the update by itself; ``like``: the shape that trains alike, where this one does not run here;
    ``by_file``: MindSpore runs the exported file, but not the cell (branches that return different types)."""

    wrap: Callable[[nn.Cell, nn.Cell], nn.Cell]
    network: Callable[[], nn.Cell] = Net
    batch: Callable[[np.random.Generator], Batch] = arrays
    optimizer: Callable[[Any], nn.Cell] = momentum
    loss: int | None = 0
    checks: bool = False
    like: str | None = None
    by_file: bool = False

    def build(self) -> nn.Cell:
        ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
        ms.set_seed(1)
        np.random.seed(1)
        network = self.network()
        return self.wrap(network, self.optimizer(network.trainable_params())).set_train()

    def batches(self, n: int) -> list[Batch]:
        rng = np.random.default_rng(1)
        return [self.batch(rng) for _ in range(n)]

    def export(self, path: str) -> None:
        ms.export(self.build(), *map(ms.Tensor, self.batches(1)[0]), file_name=path, file_format="MINDIR")


def alone(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
    return network


ACCEPTED = {
    "tutorial": Shape(Tutorial, checks=True),
    "tutorial_of_three": Shape(Tutorial, Net3, three, adam, checks=True),
    "tutorial_of_five": Shape(Tutorial, Net5, five, checks=True),
    "tutorial_status": Shape(TutorialStatus, checks=True, like="tutorial"),
    "clipped_first": Shape(ClippedFirst),
    "depended": Shape(Depended, checks=True),
    "succeeded": Shape(Succeeded, checks=True, by_file=True),
    "succeeded_of_three": Shape(Succeeded, Net3, three, adam, checks=True, by_file=True),
    "succeeded_of_five": Shape(Succeeded, Net5, five, checks=True, by_file=True),
    "success_out": Shape(SuccessOut, checks=True),
    "success_last": Shape(SuccessLast, checks=True, by_file=True),
    "loss_last": Shape(LossLast, loss=2, checks=True),
    "nested": Shape(Nested, checks=True),
    "no_loss": Shape(NoLoss, loss=None),
    "no_loss_functional": Shape(NoLossFunctional, loss=None),
    "no_loss_constants": Shape(NoLossFunctional, loss=None, optimizer=adam_weight_decay),
    "updated_constants": Shape(Updated, optimizer=adam_weight_decay),
    "no_loss_grad": Shape(NoLossGrad, loss=None, optimizer=adam),
    "no_loss_true": Shape(NoLossTrue, loss=None),
    "no_loss_filtered": Shape(NoLossFiltered, loss=None, checks=True),
    "yolo": Shape(YoloStep, checks=True),
    "yolo_gradients": Shape(YoloGradients, checks=True),
    "yolo_else": Shape(YoloElse),
    "yolo_bare": Shape(YoloBare, checks=True),
    "aux": Shape(Aux),
    "aux_first": Shape(AuxFirst, checks=True),
    "loss_of_branches": Shape(LossOfBranches, loss=None, checks=True),
    "amp": Shape(Amp, checks=True),
    "norms": Shape(Norms, checks=True),
    "sens_input": Shape(SensInput, batch=scaled),
}
REFUSED = {
    "own": Shape(Own),
    "own_mapped": Shape(OwnMapped),
    "own_scaled": Shape(OwnScaled),
    "constant": Shape(alone, Constant, vector),
    "given": Shape(alone, Given, vector),
    "table": Shape(nn.TrainOneStepCell, Table, tokens, lazy_adam),
    "table_adam": Shape(nn.TrainOneStepCell, Table, tokens, adam),
}
SHAPES = {**ACCEPTED, **REFUSED}
