"""The Cells by which MindSpore differentiates a loaded graph. It parses their source, so they stand in a file of their
own. Imports MindSpore."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore
from mindspore import nn, ops


class Loss(nn.Cell):  # type: ignore[misc]
    def __init__(self, graph: Any, state: Sequence[mindspore.Parameter]):
        super().__init__(auto_prefix=False)
        self.graph = graph
        self.state = mindspore.ParameterTuple(state)

    def construct(self, *inputs):  # type: ignore[no-untyped-def]
        return self.graph(*inputs, *self.state)


class Gradients(nn.Cell):  # type: ignore[misc]
    """Those of the loss, by weight."""

    def __init__(self, loss: Loss, weights: Sequence[mindspore.Parameter]):
        super().__init__(auto_prefix=False)
        self.loss = loss
        self.weights = mindspore.ParameterTuple(weights)
        self.of = ops.GradOperation(get_by_list=True)

    def construct(self, *inputs):  # type: ignore[no-untyped-def]
        return self.of(self.loss, self.weights)(*inputs)

    def __call__(self, *inputs: Any) -> Any:
        return self.compile_and_run(*inputs)  # a loaded graph can only be compiled, also in PyNative mode
