"""The Cells around a forward network. MindSpore parses their source, so they stand in a file of their own."""

from __future__ import annotations

from typing import Any

from mindspore import nn


class LossOfLastInput(nn.Cell):  # type: ignore[misc]
    """A network of any number of inputs with its loss, whose labels are one more input, the last."""

    def __init__(self, backbone: nn.Cell, loss_fn: Any):
        super().__init__(auto_prefix=False)
        self._backbone = backbone
        self._loss_fn = loss_fn

    def construct(self, *inputs):  # type: ignore[no-untyped-def]
        return self._loss_fn(self._backbone(*inputs[:-1]), inputs[-1])


class Update(nn.Cell):  # type: ignore[misc]
    """An optimizer alone: it takes the gradients of its weights."""

    def __init__(self, optimizer: nn.Cell):
        super().__init__(auto_prefix=False)
        self.optimizer = optimizer

    def construct(self, *gradients):  # type: ignore[no-untyped-def]
        return self.optimizer(gradients)
