"""boost-verify of `freeze`: it keeps the network, so the original's gradients judge it, which need be no derivative."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.passes import freeze
from boost_compile.passes.step.split import find_cut
from boost_compile.tools.verification.report import FAILED, PASSED
from mindspore import nn, ops

import boost_compile as bc


class StraightThrough(nn.Cell):
    """Rounds in the middle, and lets the gradient pass as if it did not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Dense(4, 6), nn.Dense(6, 3)

    def construct(self, x):
        h = self.first(x)
        return self.second(h + ops.stop_gradient(ops.floor(4 * h) - h))


class TwoLosses(nn.Cell):
    """Two networks, each with a loss and an optimizer of its own; the returned loss is that of one."""

    def __init__(self) -> None:
        super().__init__()
        self.maker, self.critic = nn.Dense(3, 4), nn.Dense(4, 1)
        self.update_maker = nn.Momentum(self.maker.trainable_params(), 0.1, 0.9)
        self.update_critic = nn.Momentum(self.critic.trainable_params(), 0.1, 0.9)
        self.make = ops.value_and_grad(self.made, None, self.update_maker.parameters)
        self.criticise = ops.value_and_grad(self.seen, None, self.update_critic.parameters)

    def made(self, z):
        return ops.softplus(-self.critic(ops.tanh(self.maker(z)))).mean()

    def seen(self, x, z):
        fake = ops.stop_gradient(ops.tanh(self.maker(z)))
        return ops.softplus(-self.critic(x)).mean() + ops.softplus(self.critic(fake)).mean()

    def construct(self, x, z):
        loss, of_critic = self.criticise(x, z)
        _, of_maker = self.make(z)
        return ops.depend(loss, (self.update_critic(of_critic), self.update_maker(of_maker)))


def straight_through() -> bc.Program:
    net, (x, y) = StraightThrough(), arrays(4, 3)
    return bc.capture(net, nn.MSELoss(), nn.Adam(net.trainable_params(), 0.01), x, y)


def two_losses() -> bc.Program:
    return bc.capture(TwoLosses().set_train(), *arrays(4, 3))


def arrays(*sizes: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((5, size)).astype(np.float32) for size in sizes]


@pytest.mark.parametrize("make", [straight_through, two_losses])
def test_what_freeze_leaves_has_the_originals_gradients(make: Callable[[], bc.Program]) -> None:
    ms.set_seed(1)
    original = make()
    found = bc.verify(original, bc.compile(original, "freeze{match=*bias},gradient-accumulation{steps=2}"))
    assert found.verified, found
    assert found.result("different micro-batches").status == PASSED


def test_a_freeze_that_changes_other_gradients_is_guilty(
    exported: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = freeze.freeze_weights

    def wrong(program: bc.Program, frozen: set[str]) -> int:
        gone = real(program, frozen)
        for graph in program.graphs.values():
            gradient = find_cut(anatomy(graph)).gradients[0].value  # a product, in the backward part
            factor = graph.constant(scalar_tensor("float32", 1.01))
            with graph.inserting_before(gradient):
                gradient.set_operand(0, graph.create("Mul", [gradient.operand(0), factor]))
        return gone

    monkeypatch.setattr(freeze, "freeze_weights", wrong)
    original = bc.load(exported("mlp"))
    found = bc.verify(original, bc.compile(original, "freeze{match=*bias},gradient-accumulation{steps=2}"))
    assert found.result("different micro-batches").status == FAILED
    assert found.guilty is not None
    assert found.guilty.name == "freeze"
