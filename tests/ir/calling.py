"""A cell that calls a loaded graph with its state as last arguments; in a file, because graph mode reads its source."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn


class CallWithState(nn.Cell):
    def __init__(self, graph, parameters) -> None:
        super().__init__(auto_prefix=False)
        self.graph = graph
        self.state = ms.ParameterTuple(parameters)

    def construct(self, *inputs):
        return self.graph(*inputs, *self.state)
