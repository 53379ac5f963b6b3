"""Training cells that scale the loss, in every form in which MindSpore asks for an overflow.

Which form `nn.TrainOneStepWithLossScaleCell` exports depends on the machine; its own flags are set here as each machine
would set them. None runs on a CPU as it is. Scales are powers of two that a few steps carry over the edge.
"""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
from mindspore import nn, ops
from mindspore.nn.wrap.loss_scale import _grad_scale as unscale

from .case import Case
from .control_flow import Branch
from .lenet import LeNetBatchNorm, digits
from .mlp import MLP, classes, cross_entropy, half_compute, half_weights, momentum
from .recurrent import LSTMClassifier, sequences
from .structure import SharedWeights, TwoInputs, adam, two_inputs
from .transformer import adam_weight_decay, gpt_untied, text

Wrap = Callable[[nn.Cell, nn.Cell], nn.Cell]
Cell = type[nn.TrainOneStepWithLossScaleCell]


class Cleared(nn.TrainOneStepWithLossScaleCell):
    """Clears the status before backward, as the documentation of `start_overflow_check` says; clips before it asks."""

    def clip(self, gradients):
        return ops.clip_by_global_norm(gradients, 0.5)

    def construct(self, *inputs):
        loss = self.network(*inputs)
        status, scale = self.start_overflow_check(loss, self.scale_sense)
        seeds = ops.ones_like(loss) * ops.cast(scale, loss.dtype)
        gradients = self.grad(self.network, self.weights)(*inputs, seeds)
        gradients = self.clip(self.hyper_map(ops.partial(unscale, scale), gradients))
        condition = self.get_overflow_status(status, gradients)
        if not self.process_loss_scale(condition):
            loss = ops.depend(loss, self.optimizer(gradients))
        return loss, condition, scale


class Allocated(nn.TrainOneStepWithLossScaleCell):
    """The status of the first generation, which is read in place; asked before the gradients are unscaled."""

    def __init__(self, network, optimizer, scale_sense):
        super().__init__(network, optimizer, scale_sense)
        self.allocate = ops.NPUAllocFloatStatus()
        self.read = ops.NPUGetFloatStatus()
        self.clear = ops.NPUClearFloatStatus()
        self.sum = ops.ReduceSum(keep_dims=False)

    def construct(self, *inputs):
        loss = self.network(*inputs)
        status = ops.depend(self.allocate(), loss)
        scale = ops.depend(self.scale_sense, self.clear(status))
        seeds = ops.ones_like(loss) * ops.cast(scale, loss.dtype)
        gradients = self.grad(self.network, self.weights)(*inputs, seeds)
        status = ops.depend(status, gradients)
        status = ops.depend(status, self.read(status))
        condition = self.less_equal(self.base, self.sum(status, (0,)))
        gradients = self.hyper_map(ops.partial(unscale, scale), gradients)
        if not self.process_loss_scale(condition):
            loss = ops.depend(loss, self.optimizer(gradients))
        return loss, condition, scale


class PartlyAwaited(nn.TrainOneStepWithLossScaleCell):
    """Waits for one gradient only: on a device that computes them in order, the status knows of all. Its results stand
    in another order."""

    def construct(self, *inputs):
        loss = self.network(*inputs)
        seeds = ops.ones_like(loss) * ops.cast(self.scale_sense, loss.dtype)
        gradients = self.grad(self.network, self.weights)(*inputs, seeds)
        gradients = self.hyper_map(ops.partial(unscale, self.scale_sense), gradients)
        condition = self.get_overflow_status(ms.Tensor([0] * 8, ms.int32), gradients[-1])
        if not self.process_loss_scale(condition):
            loss = ops.depend(loss, self.optimizer(gradients))
        return loss, self.scale_sense, condition


class AskedInBranch(nn.TrainOneStepWithLossScaleCell):
    """Asks in a branch, that is in a function."""

    def __init__(self, network, optimizer, scale_sense):
        super().__init__(network, optimizer, scale_sense)
        self.careful = ms.Parameter(ms.Tensor(True, ms.bool_), name="careful", requires_grad=False)
        self.fine = ms.Tensor(False, ms.bool_)

    def construct(self, *inputs):
        loss = self.network(*inputs)
        seeds = ops.ones_like(loss) * ops.cast(self.scale_sense, loss.dtype)
        gradients = self.grad(self.network, self.weights)(*inputs, seeds)
        gradients = self.hyper_map(ops.partial(unscale, self.scale_sense), gradients)
        if self.careful:
            condition = self.get_overflow_status(ms.Tensor([0] * 8, ms.int32), gradients)
        else:
            condition = self.fine
        if not self.process_loss_scale(condition):
            loss = ops.depend(loss, self.optimizer(gradients))
        return loss, condition, self.scale_sense


def dynamic(scale: float, window: int = 3, cell: Cell = nn.TrainOneStepWithLossScaleCell) -> Wrap:
    return lambda network, optimizer: cell(network, optimizer, nn.DynamicLossScaleUpdateCell(scale, 2, window))


def fixed(scale: float) -> Wrap:
    return lambda network, optimizer: nn.TrainOneStepWithLossScaleCell(
        network, optimizer, nn.FixedLossScaleUpdateCell(scale)
    )


def constant(scale: float, *shape: int) -> Wrap:
    value = ms.ops.full(shape, scale, dtype=ms.float32)
    return lambda network, optimizer: nn.TrainOneStepWithLossScaleCell(network, optimizer, value)


def as_gpu(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
    """FloatStatus of every gradient."""
    cell = dynamic(2.0**10)(network, optimizer)
    cell.gpu_target = True
    return cell


def as_ascend_910a(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
    """The status is cleared before it is needed too."""
    cell = dynamic(2.0**10, cell=Cleared)(network, optimizer)
    cell.ascend_910a_target = True
    return cell


def as_ascend_910b(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
    """AllFinite of all gradients."""
    cell = dynamic(2.0**10)(network, optimizer)
    cell.ascend_910b_target = True
    cell._ascend_check_overflow_mode = "INFNAN_MODE"
    cell.enable_allfinite = True
    return cell


def half_gpt() -> nn.Cell:
    return gpt_untied().to_float(ms.float16)


def over_ranks(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
    """Sums the status over the ranks before it is compared."""
    cell = dynamic(2.0**10)(network, optimizer)
    cell.is_distributed = True
    return cell


_TAGS = frozenset({"loss-scale-cell"})
CASES = [
    Case(name, network, optimizer, batch, loss, wrap, runs_on_cpu=False, tags=_TAGS)
    for name, network, optimizer, batch, loss, wrap in (
        ("scaled_dynamic", MLP, momentum, classes, cross_entropy, dynamic(2.0**10)),
        ("scaled_fixed", MLP, momentum, classes, cross_entropy, fixed(2.0**10)),
        ("scaled_tensor", MLP, adam, classes, cross_entropy, constant(2.0**10)),
        ("scaled_tensor_of_one", MLP, momentum, classes, cross_entropy, constant(2.0**10, 1)),
        ("scaled_gpu", MLP, adam, classes, cross_entropy, as_gpu),
        ("scaled_910a", MLP, momentum, classes, cross_entropy, as_ascend_910a),
        ("scaled_910b", MLP, adam_weight_decay, classes, cross_entropy, as_ascend_910b),
        ("scaled_allocated", MLP, momentum, classes, cross_entropy, dynamic(2.0**10, cell=Allocated)),
        ("scaled_partly_awaited", MLP, momentum, classes, cross_entropy, dynamic(2.0**10, cell=PartlyAwaited)),
        ("scaled_asked_in_branch", MLP, adam, classes, cross_entropy, dynamic(2.0**10, cell=AskedInBranch)),
        ("scaled_lenet_adam", LeNetBatchNorm, adam, digits, cross_entropy, dynamic(2.0**12, 2)),
        ("scaled_gpt", half_gpt, adam_weight_decay, text, None, dynamic(2.0**18, 2)),
        ("scaled_lstm", LSTMClassifier, adam, sequences, cross_entropy, dynamic(2.0**12, 2)),
        ("scaled_branch", Branch, momentum, classes, cross_entropy, dynamic(2.0**12, 2)),
        ("scaled_shared_weights", SharedWeights, adam_weight_decay, classes, cross_entropy, dynamic(2.0**12, 2)),
        ("scaled_two_inputs", TwoInputs, momentum, two_inputs, None, fixed(2.0**12)),
        ("scaled_half_compute", half_compute, adam, classes, cross_entropy, dynamic(2.0**18, 2)),
        ("scaled_half_weights", half_weights, momentum, classes, cross_entropy, dynamic(2.0**18, 2)),
    )
] + [Case("scaled_over_ranks", MLP, momentum, classes, cross_entropy, over_ranks, runs_on_cpu=False)]
