"""A plan as a case: MindSpore cells, as the other tests build, export and train them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from tests.networks import Batch, Case
from tests.networks.loss_scale import dynamic

from .layers import FUNCTIONS, make_layer
from .plan import Network, Options, Part, Plan

CLASSIFYING = ("cross_entropy", "smoothed", "nll", "weighted")
SENS = 256.0
GOING_ON = ("embedding", "activation", *(name for name in FUNCTIONS if name != "join"))
"""Layers that take values as they come; the others take float32, unless they compute in float16 themselves."""


class Planned(nn.Cell):
    def __init__(self, network: Network) -> None:
        super().__init__()
        cells = []
        for layer in network.layers:
            cell = make_layer(layer.op, layer.options)
            cells.append(cell.to_float(ms.float16) if layer.half else cell)
        self.layers = nn.CellList(cells)
        self.wiring = tuple(
            (call.layer, call.how, call.sources, network.layers[call.layer].op in GOING_ON) for call in network.calls
        )

    def construct(self, *inputs):
        values = inputs
        for index, how, sources, goes_on in self.wiring:
            arguments = ()
            for source in sources:
                value = values[source]
                arguments += (value if goes_on else value.astype(ms.float32),)
            cell = self.layers[index]
            if how == "tied":
                values += (ops.matmul(arguments[0], cell.weight),)
            elif how == "decode":
                values += (ops.matmul(arguments[0], cell.embedding_table.T),)
            else:
                values += (cell(*arguments),)
        return values[-1].astype(ms.float32)


class Judged(nn.Cell):
    """The network and its loss: the last inputs are the loss's."""

    def __init__(self, network: nn.Cell, inputs: int, loss: Part) -> None:
        super().__init__()
        self.network = network
        self.inputs = inputs
        self.loss = LOSSES[loss.name](**loss.options)

    def construct(self, *inputs):
        return self.loss(self.network(*inputs[: self.inputs]), *inputs[self.inputs :])


class Weighted(nn.Cell):
    """A mean over samples that counts each as often as an input says."""

    def __init__(self) -> None:
        super().__init__()
        self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True)

    def construct(self, logits, labels, importance):
        return (self.loss(logits, labels) * importance).sum() / importance.sum()


class LogLikelihood(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.loss = nn.NLLLoss()

    def construct(self, logits, labels):
        return self.loss(ops.log_softmax(logits, -1), labels)


class Hinge(nn.Cell):
    def construct(self, output, targets):
        return ops.relu(1 - output * ops.sign(targets)).mean() + 0.01 * ops.square(output).mean()


LOSSES: dict[str, Callable[..., nn.Cell]] = {
    "cross_entropy": lambda reduction: nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction=reduction),
    "smoothed": lambda smoothing: nn.CrossEntropyLoss(label_smoothing=smoothing),
    "nll": LogLikelihood,
    "weighted": Weighted,
    "mse": nn.MSELoss,
    "l1": nn.L1Loss,
    "smooth_l1": lambda: nn.SmoothL1Loss(reduction="mean"),
    "huber": nn.HuberLoss,
    "bce": nn.BCEWithLogitsLoss,
    "hinge": Hinge,
}


class Functional(nn.Cell):
    """The functional style: value_and_grad and a call of the optimizer."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.weights = optimizer.parameters
        self.optimizer = optimizer
        self.gradients = ms.value_and_grad(network, None, self.weights)

    def construct(self, *inputs):
        loss, gradients = self.gradients(*inputs)
        self.optimizer(gradients)
        return loss


class Clipped(Functional):
    def construct(self, *inputs):
        loss, gradients = self.gradients(*inputs)
        self.optimizer(ops.clip_by_global_norm(gradients, 0.5))
        return loss


class Gated(Functional):
    """The optimizer in a branch, which is always taken."""

    def construct(self, *inputs):
        loss, gradients = self.gradients(*inputs)
        if loss < 1e6:
            self.optimizer(gradients)
        return loss


class Averaged(Functional):
    """A moving average of the weights, after the update."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.average = self.weights.clone("average", "same")

    def construct(self, *inputs):
        loss, gradients = self.gradients(*inputs)
        loss = ops.depend(loss, self.optimizer(gradients))
        for average, weight in zip(self.average, self.weights):  # noqa: B905 (graph mode knows no strict)
            loss = ops.depend(loss, ops.assign(average, 0.9 * average + 0.1 * weight))
        return loss


def _sens(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
    return nn.TrainOneStepCell(network, optimizer, sens=SENS)


def make_cell(part: Part) -> Callable[[nn.Cell, nn.Cell], nn.Cell]:
    if part.name == "loss_scale":
        return dynamic(**part.options)
    cells = {"step": nn.TrainOneStepCell, "sens": _sens, "functional": Functional}
    return {**cells, "clipped": Clipped, "gated": Gated, "averaged": Averaged}[part.name]


def _rate(options: Options) -> Any:
    """A constant, a list by step, or a schedule that computes it."""
    kind, value = options["kind"], options["value"]
    if kind == "exponential_list":
        return nn.exponential_decay_lr(value, 0.8, 20, 2, 1)
    if kind == "cosine_list":
        return nn.cosine_decay_lr(0.1 * value, value, 20, 2, 4)
    if kind == "exponential":
        return nn.ExponentialDecayLR(value, 0.8, 2)
    if kind == "cosine":
        return nn.CosineDecayLR(0.1 * value, value, 6)
    if kind == "polynomial":
        return nn.PolynomialDecayLR(value, 0.1 * value, 6, 0.5)
    if kind == "inverse":
        return nn.InverseDecayLR(value, 0.5, 2, True)
    if kind == "warm_up":
        return nn.WarmUpLR(value, 3)
    return value


def make_optimizer(part: Part, parameters: list[ms.Parameter], sens: float) -> nn.Cell:
    """`sens` is the loss scale of the training cell, which the optimizer takes out again."""
    options = dict(part.options)
    rate, groups = options.pop("rate", None), options.pop("groups", "one")
    scale = {"loss_scale": sens} if sens != 1.0 else {}
    if rate is not None:
        options["learning_rate"] = _rate(rate)
    given: list[Any] = parameters
    if groups != "one":
        many = [p for p in parameters if len(p.shape) > 1]
        few = [p for p in parameters if len(p.shape) <= 1]
        given = [{"params": many, "weight_decay": 0.02}, {"params": few, "weight_decay": 0.0}]
        if groups == "rates" and rate is not None:
            given[0]["lr"] = 0.5 * rate["value"]
        given = [group for group in given if group["params"]]
        if groups == "ordered":
            given.append({"order_params": parameters})
    return getattr(nn, part.name)(given, **options, **scale)


def draw_batch(plan: Plan, rng: np.random.Generator, size: int) -> Batch:
    arrays: list[np.ndarray] = []
    for x in plan.network.inputs:
        if x.kind == "tokens":
            arrays.append(rng.integers(0, x.bound, (size, *x.shape)).astype(np.int32))
        else:
            arrays.append(rng.standard_normal((size, *x.shape)).astype(np.float32))
    width = plan.network.width
    if plan.loss.name in CLASSIFYING:
        arrays.append(rng.integers(0, width, size).astype(np.int32))
    elif plan.loss.name == "bce":
        arrays.append(rng.integers(0, 2, (size, width)).astype(np.float32))
    else:
        arrays.append(rng.standard_normal((size, width)).astype(np.float32))
    if plan.loss.name == "weighted":
        arrays.append(rng.uniform(0.5, 2.0, size).astype(np.float32))
    return tuple(arrays)


def make_case(plan: Plan, name: str = "random") -> Case:
    network = plan.network

    def judged() -> nn.Cell:
        return Judged(Planned(network), len(network.inputs), plan.loss)

    sens = SENS if plan.cell.name == "sens" else 1.0
    return Case(
        name,
        judged,
        lambda parameters: make_optimizer(plan.optimizer, parameters, sens),
        lambda rng, size: draw_batch(plan, rng, size),
        wrap=make_cell(plan.cell),
        batch_size=plan.batch,
    )
