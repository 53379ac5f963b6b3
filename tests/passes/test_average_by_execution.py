"""Averages by the numbers: what they hold after each step, from the weights that training has then."""

from __future__ import annotations

from collections.abc import Callable
from math import exp

import numpy as np
import pytest
from boost_compile.passes import compile_program

from tests.execution import ORDERS, train
from tests.passes.graphs import source

STEPS = 7
Rule = Callable[[int, np.ndarray, np.ndarray], np.ndarray]
"""The average after an update, of its number, the average before it and the weight."""


def ema(step: int, old: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return 0.75 * old + 0.25 * weight


def growing_ema(step: int, old: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Of every second update; the old average counts for less in the beginning."""
    kept = 0.75 * (1 - exp(-step / 3))
    return old if step % 2 else kept * old + (1 - kept) * weight


def swa(step: int, old: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The mean of the weights after every second update behind the first three; up to there the weight itself."""
    number, rest = divmod(step - 3, 2)
    if step <= 3:
        return weight
    return old if rest else old + (weight - old) / number


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ("decay=0.75", ema),
        ("decay=0.75,warmup=3,every=2", growing_ema),
        ("kind=swa,warmup=3,every=2", swa),
    ],
)
@pytest.mark.parametrize("before", ["", "overflow-check,"])
def test_an_average_after_each_step(options: str, rule: Rule, before: str) -> None:
    program = compile_program(
        source("weight_average.ir"), f"{before}weight-average{{{options},match=[w]}}", reproducer_directory=None
    )
    start = {"w": [1.0, 2.0], "h": [1.0, 0.5], "frozen": [2.0, 1.0], "rate": 0.125, "average.w": [1.0, 2.0]}
    state = {name: np.array(value, program.state[name].dtype.value) for name, value in start.items()}
    rng = np.random.default_rng(0)
    batches = [(rng.uniform(0.5, 1.5, 2).astype(np.float32),) for _ in range(STEPS)]
    expected = state["average.w"].astype(np.float64)
    for step in range(1, STEPS + 1):
        found = [train(program, state, batches[:step], order)[1] for order in ORDERS]
        expected = rule(step, expected, found[0]["w"].astype(np.float64))
        for after in found:
            np.testing.assert_allclose(after["average.w"], expected, rtol=1e-6)
            np.testing.assert_array_equal(after["w"], found[0]["w"])
    assert np.abs(expected - found[0]["w"]).max() > 1e-3
