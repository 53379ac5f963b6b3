"""What a cell keeps of its new weights follows the update that passes change, and boost-verify knows it."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops

import boost_compile as bc


class Averaging(nn.Cell):
    """A moving average of the weights, after the update."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.network = nn.WithLossCell(nn.Dense(5, 3), nn.MSELoss())
        self.optimizer = nn.Momentum(self.network.trainable_params(), 0.1, 0.9)
        self.average = self.optimizer.parameters.clone("average", "same")
        self.gradients = ms.value_and_grad(self.network, None, self.optimizer.parameters)

    def construct(self, x, y):
        loss, gradients = self.gradients(x, y)
        loss = ops.depend(loss, self.optimizer(gradients))
        for average, weight in zip(self.average, self.optimizer.parameters):  # noqa: B905 (graph mode knows no strict)
            ops.assign(average, 0.9 * average + 0.1 * weight)
        return loss


@pytest.mark.parametrize("steps", [1, 2])
def test_an_average_of_clipped_weights_is_right(steps: int) -> None:
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    rng = np.random.default_rng(0)
    batch = [rng.normal(0, 1, shape).astype(np.float32) for shape in ((6, 5), (6, 3))]
    original = bc.capture(Averaging().set_train(), *batch)
    clipped = bc.compile(original, f"clip-gradients{{limit=0.05}},gradient-accumulation{{steps={steps}}}")
    found = bc.verify(original, clipped, quick=True)
    assert found.verified, found.failures
    assert found.result("different micro-batches").status == "passed"
