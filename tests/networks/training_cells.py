"""Training cells that users write themselves: other gradients, other optimizers, other results than TrainOneStepCell's.

Each takes the network with its loss and an optimizer; those that update by hand leave the optimizer unused.
"""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from .case import Batch, Case
from .mlp import MLP, classes, cross_entropy, momentum
from .structure import adam
from .transformer import adam_weight_decay


class Loss(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.network = MLP()
        self.loss = cross_entropy()

    def construct(self, x, labels):
        return self.loss(self.network(x), labels)


class Functional(nn.Cell):
    """The functional style: value_and_grad and a call of the optimizer."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.weights = ms.ParameterTuple(network.trainable_params())
        self.optimizer = optimizer
        self.gradients = ms.value_and_grad(network, None, self.weights)

    def construct(self, x, labels):
        loss, gradients = self.gradients(x, labels)
        self.optimizer(gradients)
        return loss


class ByHand(nn.Cell):
    """What updates by hand builds on: no optimizer, a second set of state."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.weights = ms.ParameterTuple(network.trainable_params())
        self.velocity = self.weights.clone("velocity", "zeros")
        self.gradients = ms.value_and_grad(network, None, self.weights)


class ClipGlobalNorm(nn.TrainOneStepCell):
    def construct(self, x, labels):
        loss = self.network(x, labels)
        gradients = self.grad(self.network, self.weights)(x, labels, ops.ones_like(loss))
        return ops.depend(loss, self.optimizer(ops.clip_by_global_norm(gradients, 0.1)))


class ClipByNorm(nn.TrainOneStepCell):
    """Clips in one branch of a Switch, whose results are all gradients at once."""

    def construct(self, x, labels):
        loss = self.network(x, labels)
        gradients = self.grad(self.network, self.weights)(x, labels, ops.ones_like(loss))
        return ops.depend(loss, self.optimizer(ops.clip_by_norm(gradients, 0.1)))


class Normalised(nn.Cell):
    """Three of the weights have one shape."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Dense(8, 16)
        self.norm = nn.LayerNorm((16,))
        self.output = nn.Dense(16, 4)
        self.loss = cross_entropy()

    def construct(self, x, labels):
        return self.loss(self.output(ops.tanh(self.norm(self.hidden(x)))), labels)


class ClipEach(Functional):
    """Clips each gradient by its own norm: the functions of its branches are shared by the weights of one shape."""

    limit = 0.1

    def construct(self, x, labels):
        loss, gradients = self.gradients(x, labels)
        clipped = ()
        for gradient in gradients:
            clipped = (*clipped, ops.clip_by_norm(gradient, self.limit))
        self.optimizer(clipped)
        return loss


class Accuracy(Functional):
    """Returns what it computes from the labels outside the differentiated function, and the optimizer's flags."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.gradients = ms.value_and_grad(self.forward, None, self.weights, has_aux=True)

    def forward(self, x, labels):
        logits = self.network.network(x)
        return self.network.loss(logits, labels), logits

    def construct(self, x, labels):
        (loss, logits), gradients = self.gradients(x, labels)
        updated = self.optimizer(gradients)
        return 2 * loss, (logits.argmax(1).astype(ms.int32) == labels).astype(ms.float32).mean(), updated


class GatedUpdate(Functional):
    """The optimizer in a branch: its slots and step count are touched by nothing outside."""

    def construct(self, x, labels):
        loss, gradients = self.gradients(x, labels)
        if loss < 100.0:
            self.optimizer(gradients)
        return loss


class SkipLargeNorm(Functional):
    """The norm summed in place, on a tensor that is no state."""

    def construct(self, x, labels):
        loss, gradients = self.gradients(x, labels)
        norm = ops.zeros((), ms.float32)
        for gradient in gradients:
            norm += ops.square(gradient).sum()
        if norm < 1e4:
            self.optimizer(gradients)
        return loss


class Average(Functional):
    """An exponential moving average of the weights, after the update."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.average = self.weights.clone("average", "same")

    def construct(self, x, labels):
        loss, gradients = self.gradients(x, labels)
        loss = ops.depend(loss, self.optimizer(gradients))
        for average, weight in zip(self.average, self.weights):  # noqa: B905 (graph mode knows no strict)
            loss = ops.depend(loss, ops.assign(average, 0.9 * average + 0.1 * weight))
        return loss


class Meters(Functional):
    """Running figures of the loss, written outside the differentiated function."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.total = ms.Parameter(ms.Tensor(0.0, ms.float32), name="total", requires_grad=False)
        self.smooth = ms.Parameter(ms.Tensor(0.0, ms.float32), name="smooth", requires_grad=False)

    def construct(self, x, labels):
        loss, gradients = self.gradients(x, labels)
        self.optimizer(gradients)
        ops.assign_add(self.total, loss)
        ops.assign(self.smooth, 0.5 * self.smooth + 0.5 * loss)
        return loss, self.smooth


class HandMomentum(ByHand):
    """The velocity is written first and read back for the weight."""

    def construct(self, x, labels):
        loss, gradients = self.gradients(x, labels)
        for weight, velocity, gradient in zip(self.weights, self.velocity, gradients):  # noqa: B905
            ops.assign(velocity, 0.9 * velocity + gradient)
            ops.assign_sub(weight, 0.1 * velocity)
        return loss


_update = ops.MultitypeFuncGraph("update")


@_update.register("Tensor", "Tensor", "Tensor", "Tensor")
def _update_one(rate, weight, velocity, gradient):
    return ops.depend(True, ops.assign_sub(weight, rate * ops.assign(velocity, 0.9 * velocity + gradient)))


class MappedMomentum(ByHand):
    """As optimizers of one's own are written: a HyperMap, and the result of an Assign used as a value."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.map = ops.HyperMap()

    def construct(self, x, labels):
        loss, gradients = self.gradients(x, labels)
        rate = ms.Tensor(0.1, ms.float32)
        return ops.depend(loss, self.map(ops.partial(_update, rate), self.weights, self.velocity, gradients))


class InPlace(ByHand):
    """Updates by ``-=``: an in-place primitive that is no optimizer's."""

    def construct(self, x, labels):
        loss, gradients = self.gradients(x, labels)
        for weight, gradient in zip(self.weights, gradients):  # noqa: B905
            weight -= 0.1 * gradient
        return loss


class RateInput(ByHand):
    """The learning rate is an input, which only the update uses."""

    def construct(self, x, labels, rate):
        loss, gradients = self.gradients(x, labels)
        for weight, gradient in zip(self.weights, gradients):  # noqa: B905
            ops.assign_sub(weight, rate * gradient)
        return loss


class Perturbed(Functional):
    """Takes its gradients at weights that the same step has moved (sharpness-aware minimization)."""

    def construct(self, x, labels):
        loss, gradients = self.gradients(x, labels)
        for weight, gradient in zip(self.weights, gradients):  # noqa: B905
            ops.assign_add(weight, 0.05 * gradient)
        _, second = self.gradients(x, labels)
        for weight, gradient in zip(self.weights, gradients):  # noqa: B905
            ops.assign_sub(weight, 0.05 * gradient)
        self.optimizer(second)
        return loss


class Memory(nn.Cell):
    """A recurrent network; the state of the last step is kept by the training cell."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Dense(8, 16)
        self.again = nn.Dense(16, 16)
        self.output = nn.Dense(16, 4)
        self.loss = cross_entropy()
        self.memory = ms.Parameter(ms.Tensor(np.zeros((4, 16), np.float32)), name="memory", requires_grad=False)

    def construct(self, x, labels):
        hidden = ops.tanh(self.enter(x) + self.again(self.memory))
        return self.loss(self.output(hidden), labels), hidden


class KeepMemory(Functional):
    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.gradients = ms.value_and_grad(network, None, self.weights, has_aux=True)

    def construct(self, x, labels):
        (loss, hidden), gradients = self.gradients(x, labels)
        self.optimizer(gradients)
        ops.assign(self.network.memory, hidden)
        return loss


class Adversaries(nn.Cell):
    """A generator and a discriminator with an optimizer each."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 8))
        self.critic = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 1))
        self.loss = nn.BCEWithLogitsLoss()

    def fool(self, noise):
        verdict = self.critic(self.generator(noise))
        return self.loss(verdict, ops.ones_like(verdict))

    def judge(self, real, noise):
        good, bad = self.critic(real), self.critic(ops.stop_gradient(self.generator(noise)))
        return self.loss(good, ops.ones_like(good)) + self.loss(bad, ops.zeros_like(bad))


class AtOnce(nn.Cell):
    """Both gradients at the old weights; the loss is a sum that the training cell forms."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__()
        self.network = network
        self.first = nn.Adam(network.critic.trainable_params(), 0.01)
        self.second = nn.Adam(network.generator.trainable_params(), 0.01)
        self.judge = ms.value_and_grad(network.judge, None, self.first.parameters)
        self.fool = ms.value_and_grad(network.fool, None, self.second.parameters)

    def construct(self, real, noise):
        judged, gradients = self.judge(real, noise)
        fooled, others = self.fool(noise)
        return ops.depend(judged + fooled, (self.first(gradients), self.second(others)))


class InTurn(AtOnce):
    """The generator learns from the critic that the same step has updated."""

    def construct(self, real, noise):
        judged, gradients = self.judge(real, noise)
        judged = ops.depend(judged, self.first(gradients))
        fooled, others = self.fool(noise)
        return judged, ops.depend(fooled, self.second(others))


class Lookup(nn.Cell):
    """Sparse gradients: indices and values of the rows that were looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingLookup(20, 8, sparse=True)
        self.output = nn.Dense(8, 4)

    def construct(self, tokens):
        return self.output(self.table(tokens).mean(1))


def rate_input(rng: np.random.Generator, size: int) -> Batch:
    return (*classes(rng, size), np.array(0.1, np.float32))


def pairs(rng: np.random.Generator, size: int) -> Batch:
    return rng.standard_normal((size, 8)).astype(np.float32), rng.standard_normal((size, 8)).astype(np.float32)


def tokens(rng: np.random.Generator, size: int) -> Batch:
    return rng.integers(0, 20, (size, 6)).astype(np.int32), rng.integers(0, 4, size).astype(np.int32)


def lazy_adam(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.LazyAdam(parameters, 0.01)


_CELL = frozenset({"training_cell"})
_STATE = frozenset({"training_cell", "forward_state"})
_REFUSED = frozenset({"refused"})
CASES = [
    Case("clip_global_norm", Loss, adam_weight_decay, classes, wrap=ClipGlobalNorm, tags=_CELL),
    Case("clip_by_norm", Loss, momentum, classes, wrap=ClipByNorm, tags=_CELL),
    Case("clip_each", Normalised, momentum, classes, wrap=ClipEach, tags=_CELL),
    Case("accuracy", Loss, adam, classes, wrap=Accuracy, tags=_CELL),
    Case("gated_update", Loss, momentum, classes, wrap=GatedUpdate, tags=_CELL),
    Case("skip_large_norm", Loss, adam, classes, wrap=SkipLargeNorm, tags=_CELL),
    Case("weight_average", Loss, momentum, classes, wrap=Average, tags=_CELL),
    Case("hand_momentum", Loss, momentum, classes, wrap=HandMomentum, tags=_CELL),
    Case("mapped_momentum", Loss, momentum, classes, wrap=MappedMomentum, tags=_CELL),
    Case("in_place", Loss, momentum, classes, wrap=InPlace, tags=_CELL),
    Case("rate_input", Loss, momentum, rate_input, wrap=RateInput, tags=_CELL),
    Case("at_once", Adversaries, adam, pairs, wrap=AtOnce, tags=_CELL),
    Case("meters", Loss, momentum, classes, wrap=Meters, tags=_STATE),
    Case("keep_memory", Memory, adam, classes, wrap=KeepMemory, tags=_STATE),
    Case("in_turn", Adversaries, adam, pairs, wrap=InTurn, tags=_REFUSED),
    Case("perturbed", Loss, momentum, classes, wrap=Perturbed, tags=_REFUSED),
    Case("lookup", Lookup, lazy_adam, tokens, cross_entropy, tags=_REFUSED),
]
