"""How long a session takes for a step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from functools import partial

import numpy as np

import boost_compile as bc
from benchmarks.memory import random_values
from benchmarks.turns import in_turns

STEPS, TURNS, SECONDS = 10, 6, 1.5
"""Steps of a turn, at most, and about how long they take; turns that are timed."""


def seconds_a_step(session: bc.Session, batches: Sequence[tuple[object, ...]]) -> float:
    """Mean wall-clock seconds of one step over the batches, the wait for the device at the end included."""
    start = time.perf_counter()
    for batch in batches:
        result = session.step(*batch)
    _ = result.loss  # waits for the device
    return (time.perf_counter() - start) / len(batches)


def medians_of_steps(sessions: Sequence[bc.Session]) -> list[float]:
    """Seconds of a step of each session, which take the same inputs: the median of turns."""
    rng = np.random.default_rng(0)
    batch = tuple(random_values(rng, value.type) for value in sessions[0].consumer.inputs)
    seconds_a_step(sessions[0], [batch])  # compiles
    steps = max(1, min(STEPS, round(SECONDS / seconds_a_step(sessions[0], [batch]))))
    times = in_turns(
        [partial(seconds_a_step, session, [batch] * steps) for session in sessions], fewest=TURNS, most=TURNS
    )
    return [statistics.median(one) for one in times]
