"""Cells that take several gradients in a step: of losses that are projected on each other, at weights that the step
itself has moved, or of two networks in turn. The judge is the cell itself, with the clipping in front of its optimizers
in MindSpore.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops

import boost_compile as bc
from tests.compare import assert_equal

LIMIT = 0.07


class Clipping(nn.Cell):
    """Clips by the norm of all gradients what goes into an optimizer; ``limit`` 0: not at all."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def construct(self, gradients):
        if self.limit == 0.0:
            return gradients
        total = 0.0
        for gradient in gradients:
            total = total + ops.square(gradient).sum()
        norm = ops.sqrt(total)
        clipped = ()
        for gradient in gradients:
            clipped += (gradient * (self.limit / ops.maximum(norm, ops.full_like(norm, self.limit))),)
        return clipped


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.first, self.second = nn.Dense(5, 7), nn.Dense(7, 3), nn.Dense(7, 2)

    def construct(self, x):
        h = ops.tanh(self.body(x))
        return self.first(h), self.second(h)


class Projected(nn.Cell):
    """PCGrad: of two gradients that work against each other, each loses what goes against the other."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.net, self.clip = Net(), Clipping(limit)
        self.optimizer = nn.Momentum(self.net.trainable_params(), 0.07, 0.85)
        self.first = ops.value_and_grad(self.first_loss, None, self.optimizer.parameters)
        self.second = ops.value_and_grad(self.second_loss, None, self.optimizer.parameters)

    def first_loss(self, x, labels, targets):
        return ops.cross_entropy(self.net(x)[0], labels)

    def second_loss(self, x, labels, targets):
        return ((self.net(x)[1] - targets) ** 2).mean()

    def construct(self, x, labels, targets):
        first, ones = self.first(x, labels, targets)
        second, others = self.second(x, labels, targets)
        product, size, other_size = 0.0, 1e-12, 1e-12
        for i in range(len(ones)):
            product = product + (ones[i] * others[i]).sum()
            size = size + (ones[i] ** 2).sum()
            other_size = other_size + (others[i] ** 2).sum()
        against = ops.minimum(product, ops.zeros_like(product))
        joined = ()
        for i in range(len(ones)):
            kept = ones[i] - against / other_size * others[i]
            joined += (kept + (others[i] - against / size * ones[i]),)
        return ops.depend(first + second, self.optimizer(self.clip(joined)))


class Sharpness(nn.Cell):
    """SAM: up the gradient, the gradient there, back, and down that."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.net, self.clip = Net(), Clipping(limit)
        weights = [*self.net.body.trainable_params(), *self.net.first.trainable_params()]
        self.optimizer = nn.Momentum(weights, 0.06, 0.9)
        self.weights = self.optimizer.parameters
        self.gradients = ops.value_and_grad(self.loss, None, self.weights)

    def loss(self, x, labels):
        return ops.cross_entropy(self.net(x)[0], labels)

    def construct(self, x, labels, targets):
        loss, gradients = self.gradients(x, labels)
        total = 1e-12
        for gradient in gradients:
            total = total + ops.square(gradient).sum()
        moves, moved = (), True
        for i in range(len(gradients)):
            moves += (gradients[i] * (0.03 / ops.sqrt(total)),)
            moved = ops.depend(moved, ops.assign_add(self.weights[i], moves[i]))
        _, there = self.gradients(ops.depend(x, moved), labels)
        back = True
        for i in range(len(gradients)):
            back = ops.depend(back, ops.assign_sub(self.weights[i], ops.depend(moves[i], there)))
        return ops.depend(loss, self.optimizer(self.clip(ops.depend(there, back))))


class InTurn(nn.Cell):
    """A critic is updated, and the gradients of the generator go through the critic as it is then."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.clip = Clipping(limit)
        self.critic = nn.SequentialCell(nn.Dense(5, 6), nn.Tanh(), nn.Dense(6, 1))
        self.generator = nn.SequentialCell(nn.Dense(2, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dense(6, 5))
        self.of_critic = nn.Adam(self.critic.trainable_params(), 0.003)
        self.of_generator = nn.Momentum(self.generator.trainable_params(), 0.03, 0.9)
        self.criticize = ops.value_and_grad(self.critic_loss, None, self.of_critic.parameters)
        self.generate = ops.value_and_grad(self.generator_loss, None, self.of_generator.parameters)

    def critic_loss(self, x, z):
        return (
            ops.softplus(self.critic(ops.stop_gradient(self.generator(z)))).mean()
            + ops.softplus(-self.critic(x)).mean()
        )

    def generator_loss(self, z):
        return ops.softplus(-self.critic(self.generator(z))).mean()

    def construct(self, x, labels, targets):
        loss, gradients = self.criticize(x, targets)
        loss = ops.depend(loss, self.of_critic(self.clip(gradients)))
        _, gradients = self.generate(ops.depend(targets, loss))
        return ops.depend(loss, self.of_generator(self.clip(gradients)))


class Pulled(Projected):
    """Its gradients are pulled by an operator that its loss has too, so that the operator's scope tells nothing."""

    def construct(self, x, labels, targets):
        loss, gradients = self.second(x, labels, targets)
        pulled = ()
        for gradient in gradients:
            pulled += (gradient - 0.4 * gradient.mean(),)
        return ops.depend(loss, self.optimizer(self.clip(pulled)))


CELLS = {"pulled": Pulled, "projected": Projected, "sharpness": Sharpness, "in turn": InTurn}


def build(name: str, limit: float = 0.0) -> nn.Cell:
    cell = CELLS[name](limit).set_train()
    rng = np.random.default_rng(5)
    for parameter in cell.trainable_params():
        if parameter.name.endswith(("weight", "bias")) and ".moment" not in parameter.name:
            parameter.set_data(ms.Tensor(rng.normal(0, 0.4, parameter.shape).astype(np.float32)))
    return cell


def batch(seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    x, targets = rng.normal(size=(6, 5)).astype(np.float32), rng.normal(size=(6, 2)).astype(np.float32)
    return x, rng.integers(0, 3, 6).astype(np.int32), targets


def state_of(cell: nn.Cell) -> dict[str, np.ndarray]:
    return {p.name: p.asnumpy().copy() for p in cell.get_parameters()}


@cache
def natively(name: str, limit: float) -> dict[str, np.ndarray]:
    cell = build(name, limit)
    for seed in range(3):
        cell(*map(ms.Tensor, batch(seed)))
    return state_of(cell)


def session(name: str, passes: str) -> Any:
    return bc.Session(bc.compile(bc.capture(build(name), *map(ms.Tensor, batch(0))), passes))


@pytest.mark.parametrize(
    ("name", "passes", "limit"),
    [
        *((name, f"clip-gradients{{limit={LIMIT}}}", LIMIT) for name in CELLS),
        *((name, f"loss-scale{{init=768}},clip-gradients{{limit={LIMIT}}}", LIMIT) for name in CELLS),
        ("projected", f"gradient-accumulation{{steps=2}},loss-scale{{init=24}},clip-gradients{{limit={LIMIT}}}", LIMIT),
        *((name, "overflow-check", 0.0) for name in CELLS),
    ],
)
def test_what_the_optimizer_is_handed_is_the_gradient(name: str, passes: str, limit: float) -> None:
    running = session(name, passes)
    for seed in range(3):
        for _ in range(1 + ("accumulation" in passes)):
            running.step(*batch(seed))
    found, expected = running.state(), natively(name, limit)
    for key in expected.keys() & found.keys():
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-5, atol=2e-6, err_msg=key)
    assert sum(not np.array_equal(natively(name, LIMIT)[k], natively(name, 0.0)[k]) for k in expected) > 4


@pytest.mark.parametrize("passes", ["overflow-check", f"loss-scale,clip-gradients{{limit={LIMIT}}}"])
@pytest.mark.parametrize("spoiled", [0, 2])
@pytest.mark.parametrize("name", CELLS)
def test_a_step_with_an_overflow_leaves_nothing(name: str, passes: str, spoiled: int) -> None:
    """An input of the first gradients, or of the last ones, is not finite: the statistics of the batch alone move."""
    running = session(name, passes)
    running.step(*batch(0))
    before = running.state()
    bad = list(batch(1))
    bad[spoiled] = np.full_like(bad[spoiled], np.inf)
    result = running.step(*bad)
    seen = name != "sharpness" or spoiled == 0  # that cell does not take the last input
    assert (result.overflow, result.updated) == (seen, not seen)
    after = running.state()
    still = [k for k in before if "moving" not in k and not k.startswith(("loss_scale", "overflow"))]
    if seen:
        assert_equal({k: after[k] for k in still}, {k: before[k] for k in still})
    running.step(*batch(2))
    assert all(np.isfinite(v).all() for k, v in running.state().items() if "moving" not in k or spoiled == 0)
