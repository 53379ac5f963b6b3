"""A step that no pass has touched trains as the cell does: a memory bank that the loss reads, behind a counter."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import boost_compile as bc


class Bank(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        start = Tensor(np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5))
        self.project = nn.Dense(5, 3, weight_init=start, bias_init="zeros")
        self.bank = Parameter(Tensor(np.full((8, 3), 0.1, np.float32)), name="bank", requires_grad=False)

    def construct(self, x):
        y = self.project(x)
        return (ops.matmul(y, ops.stop_gradient(self.bank).T) ** 2).mean(), y


class Step(nn.Cell):
    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.network = Bank()
        self.optimizer = nn.SGD(self.network.trainable_params(), 0.1)
        self.calls = Parameter(Tensor(np.zeros(1, np.float32)), name="calls", requires_grad=False)
        self.gradients = ms.value_and_grad(self.network, None, self.optimizer.parameters, has_aux=True)

    def construct(self, x):
        ops.assign_add(self.calls, 1.0)
        (loss, y), gradients = self.gradients(x)
        self.optimizer(gradients)
        ops.assign(self.network.bank, ops.cat((self.network.bank[4:], y), 0))
        return loss


@pytest.mark.parametrize("passes", ["", "common-subexpression-elimination"])
def test_no_update_is_left_out(passes: str) -> None:
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    batches = np.random.default_rng(0).normal(0, 1, (2, 4, 5)).astype(np.float32)
    native = Step().set_train()
    before = native.network.project.weight.asnumpy().copy()
    session = bc.Session(bc.compile(bc.capture(Step(), batches[0]), passes, allow_no_match=True), share=False)
    for x in batches:
        native(Tensor(x))
        session.step(x)
    assert not np.array_equal(before, native.network.project.weight.asnumpy())
    state = session.state()
    for parameter in native.get_parameters():
        np.testing.assert_array_equal(state[parameter.name], parameter.asnumpy(), err_msg=parameter.name)
