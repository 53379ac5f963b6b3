"""Control flow on tensor values, which exports as functions with Switch and Partial; and an effect on the outside."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn, ops

from .case import Case
from .mlp import classes, cross_entropy, momentum


class Branch(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Dense(8, 16)
        self.output = nn.Dense(16, 4)

    def construct(self, x):
        x = self.hidden(x)
        if x.sum() > 0:
            x = ops.relu(x)
        else:
            x = ops.tanh(x)
        return self.output(x)


class Loop(nn.Cell):
    """Two more passes through the same layer, counted by a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Dense(8, 16)
        self.again = nn.Dense(16, 16)
        self.output = nn.Dense(16, 4)
        self.one = ms.Tensor(1, ms.int32)

    def construct(self, x):
        x = ops.tanh(self.hidden(x))
        count = ms.Tensor(0, ms.int32)
        while count < 2:
            x = ops.tanh(self.again(x))
            count = count + self.one
        return self.output(x)


class LoopAlone(nn.Cell):
    """The loop comes first, and what follows it stands in its functions too: the main graph only calls them."""

    def __init__(self) -> None:
        super().__init__()
        self.again = nn.Dense(8, 8)
        self.output = nn.Dense(8, 4)
        self.loss = cross_entropy()

    def construct(self, x, labels):
        count = ms.Tensor(0, ms.int32)
        while count < 3:
            x = x + 0.1 * ops.tanh(self.again(x))
            count = count + 1
        return self.loss(self.output(x), labels)


class Printing(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Dense(8, 16)
        self.print = ops.Print()
        self.output = nn.Dense(16, 4)

    def construct(self, x):
        x = ops.relu(self.hidden(x))
        self.print("hidden mean:", x.mean())
        return self.output(x)


_FLOW = frozenset({"control_flow"})
CASES = [
    Case("branch", Branch, momentum, classes, cross_entropy, tags=_FLOW),
    Case("loop", Loop, momentum, classes, cross_entropy, tags=_FLOW),
    Case("loop_alone", LoopAlone, momentum, classes, tags=_FLOW),
    Case("printing", Printing, momentum, classes, cross_entropy, tags=frozenset({"io"})),
]
