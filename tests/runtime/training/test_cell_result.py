"""What ``session.cell`` returns of training cells with a loss scale of their own: what they return themselves."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops

import boost_compile as bc
from tests.networks.case import seed_everything

BATCHES = [
    (np.random.default_rng(i).standard_normal((5, 4)).astype(np.float32), np.arange(5, dtype=np.int32) % 3)
    for i in range(4)
]
unscale = ops.MultitypeFuncGraph("unscale")


@unscale.register("Tensor", "Tensor")
def unscaled(scale: Any, gradient: Any) -> Any:
    return gradient * ops.reciprocal(scale)


class Scaled(nn.TrainOneStepWithLossScaleCell):
    """As upstream's cell, with a test that every device has; what follows the ``if`` stands in its branches."""

    def construct(self, x: Any, y: Any) -> Any:
        loss = self.network(x, y)
        scale = self.scale_sense
        gradients = self.grad(self.network, self.weights)(x, y, ops.ones_like(loss) * scale)
        gradients = self.hyper_map(ops.partial(unscale, scale), gradients)
        overflow = ops.logical_not(ops.isfinite(ops.reduce_sum(gradients[0])))
        overflow = self.process_loss_scale(overflow)
        if not overflow:
            self.optimizer(gradients)
        return loss, overflow, scale.value()


def made(cell: type[nn.Cell], dynamic: bool) -> nn.Cell:
    ms.set_context(mode=ms.GRAPH_MODE)
    seed_everything()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    network = nn.WithLossCell(nn.Dense(4, 3), loss)
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
    # It grows after every second step.
    scale = nn.DynamicLossScaleUpdateCell(1024.0, 2, 2) if dynamic else ms.Tensor(1024.0, ms.float32)
    return cell(network, optimizer, scale).set_train()


@pytest.mark.mindspore
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_copy_of_the_scale_is_the_scale(dynamic: bool) -> None:
    native = made(Scaled, dynamic)
    session = bc.Session(made(Scaled, dynamic), inputs=BATCHES[0])
    for batch in BATCHES:
        tensors = [ms.Tensor(array) for array in batch]
        expected, found = native(*tensors), session.cell(*tensors)
        assert len(found) == 3
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_allclose(other.asnumpy(), one.asnumpy(), rtol=1e-6)


@pytest.mark.mindspore
def test_a_session_of_a_live_cell_replaces_what_the_device_has_no_kernel_for() -> None:
    """Upstream's cell reads the status of an Ascend."""
    upstream = made(nn.TrainOneStepWithLossScaleCell, True)
    session = bc.Session(bc.capture(upstream, *BATCHES[0]))
    native = made(Scaled, True)
    for batch in BATCHES:
        tensors = [ms.Tensor(array) for array in batch]
        loss, overflow, scale = native(*tensors)
        result = session.cell(*tensors)
        assert float(result[0]) == pytest.approx(float(loss), rel=1e-6)
        assert bool(result[1]) is bool(overflow) is False
        assert float(result[2]) == float(scale)
