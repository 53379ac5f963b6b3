"""boost-verify of half precision with a loss scale: judged by gradients that are scaled as well."""

from __future__ import annotations

from dataclasses import replace

import mindspore
import numpy as np
import pytest
from boost_compile.passes import loss_scale
from boost_compile.tools.verification.verifier import verify
from mindspore import nn, ops

import boost_compile as bc


class Faint(nn.Cell):
    """Its gradients are sums of numbers of which float16 knows few digits, unless they are scaled."""

    def __init__(self, half: bool = False) -> None:
        super().__init__()
        self.hidden, self.output = nn.Dense(16, 8), nn.Dense(8, 4)
        for layer in (self.hidden, self.output):
            layer.to_float(mindspore.float16 if half else mindspore.float32)

    def construct(self, x, wanted):  # type: ignore[no-untyped-def]
        found = self.output(ops.sigmoid(self.hidden(x) * 0.01))
        return ops.mean(ops.square(found - wanted)) * 0.0001


def captured(half: bool) -> bc.Program:
    mindspore.set_seed(1)
    network = Faint(half)
    training = nn.TrainOneStepCell(network, nn.Momentum(network.trainable_params(), 0.1, 0.9))
    program = bc.capture(training, np.zeros((64, 16), np.float32), np.zeros((64, 4), np.float32))
    return replace(program, live=None)


@pytest.fixture(scope="module")
def faint() -> bc.Program:
    return captured(half=False)


@pytest.fixture(scope="module")
def batches() -> list[tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(0)
    return [
        tuple(scale * rng.standard_normal((64, n)).astype(np.float32) for scale, n in ((30, 16), (1, 4))) for _ in "ab"
    ]


def test_scaled_half_precision_is_compared_with_scaled_gradients(
    faint: bc.Program, batches: list[tuple[np.ndarray, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what scales them wrongly is found."""
    passes = "mixed-precision"
    found = bc.verify(faint, bc.compile(faint, passes), data=batches)
    assert found.verified, found
    deviation = found.result("different micro-batches").deviation
    assert deviation is not None
    assert deviation.equal

    real = loss_scale.divide_gradients
    monkeypatch.setattr(
        loss_scale, "divide_gradients", lambda g, of, **options: real(g, dict(list(of.items())[1:]), **options)
    )
    found = verify(faint, bc.compile(faint, passes), data=batches)
    assert found.failures
    assert found.guilty is not None
    assert found.guilty.name == passes


def test_an_original_in_half_precision_is_compared_with_gradients_of_its_scaled_loss(
    batches: list[tuple[np.ndarray, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it loses without a scale is no reference; a gradient that is not unscaled is found."""
    original, passes = captured(half=True), "loss-scale{mode=static,init=65536.0}"
    found = bc.verify(original, bc.compile(original, passes), data=batches)
    assert found.verified, found
    real = loss_scale.divide_gradients
    monkeypatch.setattr(
        loss_scale, "divide_gradients", lambda g, of, **options: real(g, dict(list(of.items())[1:]), **options)
    )
    assert verify(original, bc.compile(original, passes), data=batches, bisect=False).failures
