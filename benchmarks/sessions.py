"""How long a session takes for a step."""

from __future__ import annotations

import time
from collections.abc import Sequence

import boost_compile as bc


def seconds_a_step(session: bc.Session, batches: Sequence[tuple[object, ...]]) -> float:
    """Mean wall-clock seconds of one step over the batches, the wait for the device at the end included."""
    start = time.perf_counter()
    for batch in batches:
        result = session.step(*batch)
    _ = result.loss  # waits for the device
    return (time.perf_counter() - start) / len(batches)
