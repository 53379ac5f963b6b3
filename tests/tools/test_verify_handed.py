"""What is clipped is held against the loss and the scopes of the file: a wrong opinion of what a gradient is, which
compiler and judge share, is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mindspore
import numpy as np
import pytest
from boost_compile.ir.analysis.training import gradient_path
from boost_compile.tools.verification.report import PASSED
from mindspore import nn, ops

import boost_compile as bc

CLIP, SGD = "clip-gradients{limit=0.01}", "replace-optimizer{to=sgd{lr=0.1}}"


class SquaredSum(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Dense(6, 3)

    def construct(self, x, wanted):  # type: ignore[no-untyped-def]
        return ops.square(self.layer(x) - wanted).sum()


class Divides(nn.Cell):
    """Its optimizer is handed the gradient of a sum, divided by a number that is no power of two."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.network, self.by = SquaredSum(), by
        self.weights = mindspore.ParameterTuple(self.network.trainable_params())
        self.optimizer = nn.Momentum(self.weights, 0.05, 0.9)
        self.gradient, self.map = ops.value_and_grad(self.network, None, self.weights), ops.HyperMap()

    def construct(self, x, wanted):  # type: ignore[no-untyped-def]
        loss, gradients = self.gradient(x, wanted)
        gradients = self.map(ops.partial(divided, self.by), gradients)
        self.optimizer(gradients)
        return loss


divided = ops.MultitypeFuncGraph("divided")


@divided.register("Number", "Tensor")
def _divided(by, gradient):  # type: ignore[no-untyped-def]
    return gradient / by


class Averages(nn.Cell):
    """It is its own optimizer, which keeps a moving average of gradients."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.network, self.share = SquaredSum(), share
        self.weights = mindspore.ParameterTuple(self.network.trainable_params())
        self.average = self.weights.clone("average", "zeros")
        self.gradient = ops.value_and_grad(self.network, None, self.weights)

    def construct(self, x, wanted):  # type: ignore[no-untyped-def]
        loss, gradients = self.gradient(x, wanted)
        for weight, average, gradient in zip(self.weights, self.average, gradients):  # noqa: B905 - MindSpore parses it
            ops.assign(average, average * (1.0 - self.share) + gradient * self.share)
            ops.assign_sub(weight, 0.05 * average)
        return loss


@pytest.mark.parametrize(
    ("cell", "passes", "wrong", "says"),
    [
        (lambda: Divides(24.0), CLIP, None, "and the optimizer's cell is handed something else"),
        (lambda: Divides(24.0), SGD, None, "and the optimizer's cell is handed something else"),
        (lambda: Averages(0.0625), CLIP, "unscale", "is 0.0625 times the gradient of the loss, and no cell"),
    ],
)
def test_a_wrong_boundary_of_gradients_is_found(
    cell: Any, passes: str, wrong: str | None, says: str, monkeypatch: Any
) -> None:
    mindspore.set_seed(1)
    x, wanted = np.zeros((4, 6), np.float32), np.zeros((4, 3), np.float32)
    original = replace(bc.capture(cell(), x, wanted), live=None)
    program = bc.compile(original, passes)
    found = bc.verify(original, program)
    assert found.verified, found
    assert found.result("handed gradients").status == PASSED
    monkeypatch.setattr(gradient_path._Walk, "_of_factor", lambda *_: wrong)
    monkeypatch.setattr(gradient_path._Walk, "_treated", lambda *_: None)
    if passes == CLIP:  # replace-optimizer refuses what it would lose then
        program = bc.compile(original, passes)
    found = bc.verify(original, program, bisect=False)
    assert found.result("handed gradients").failed
    assert says in found.result("handed gradients").detail
