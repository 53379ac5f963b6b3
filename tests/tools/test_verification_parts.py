"""Parts of boost-verify by themselves: what random programs showed of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from boost_compile.tools.verification.centralization import _mean
from boost_compile.tools.verification.subject import Subject

import boost_compile as bc


def test_a_sequence_need_not_hold_the_whole_network(exported: Callable[[str], Path]) -> None:
    """With few cycles that train everything, none does before the sequence is over."""
    freeze = "gradient-freeze{groups=2,type=continuous,probability=0.1,total_steps=4}"
    program = bc.compile(bc.load(str(exported("mlp"))), freeze)
    assert program.schedule.choice is not None
    assert program.schedule.choice.of_cycle(0) == 1
    subject = Subject(program, list(program.state))
    subject.restart()
    assert subject.variant == 0


def test_decay_on_both_sides_of_centralization() -> None:
    """ASGD decays before centralization (in the gradient) and behind it: the step has the mean of the second."""
    rng = np.random.default_rng(1)
    start = rng.uniform(0.5, 1.5, (6, 8)).astype(np.float32)
    gradient = rng.standard_normal(start.shape)
    centred = gradient - gradient.mean(1, keepdims=True)
    right = (start * (1 - 1e-4) - 0.01 * centred).astype(np.float32)
    wrong = (start * (1 - 1e-4) - 0.01 * gradient).astype(np.float32)
    assert _mean(right, start).excess > 1
    assert _mean(right, start, decayed=True).excess <= 1
    assert _mean(wrong, start, decayed=True).excess > 1
