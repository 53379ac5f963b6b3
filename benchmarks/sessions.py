"""How long a session takes for a step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np

import boost_compile as bc
from benchmarks.memory import random_values

STEPS, TURNS, SECONDS = 10, 6, 1.5
"""Steps of a turn, at most, and about how long they take; turns that are timed."""


def seconds_a_step(session: bc.Session, batches: Sequence[tuple[object, ...]]) -> float:
    """Mean wall-clock seconds of one step over the batches, the wait for the device at the end included."""
    start = time.perf_counter()
    for batch in batches:
        result = session.step(*batch)
    _ = result.loss  # waits for the device
    return (time.perf_counter() - start) / len(batches)


def in_turns(sessions: Sequence[bc.Session]) -> list[float]:
    """Seconds of a step of each session, which take the same inputs: the median of turns that they take one behind the
    other."""
    rng = np.random.default_rng(0)
    batch = tuple(random_values(rng, value.type) for value in sessions[0].consumer.inputs)
    times: list[list[float]] = [[] for _ in sessions]
    steps = 1
    for turn in range(TURNS + 1):
        for one, session in zip(times, sessions, strict=True):
            one.append(seconds_a_step(session, [batch] * steps))
        if not turn:
            steps = max(1, min(STEPS, round(SECONDS / seconds_a_step(sessions[0], [batch]))))
    return [statistics.median(one[1:]) for one in times]
