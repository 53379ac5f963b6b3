"""Fair times: what is compared runs in turns, in one process, and a ratio is the median of the turns' ratios.

Other work on the machine, and its clock, change slowly. Turns that follow each other meet the same, so their ratio is
steadier than that of two medians. Who begins changes from turn to turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

SECONDS, FEWEST, MOST = 25.0, 11, 101
"""How long all turns take together, about, and their least and greatest number."""


def in_turns(
    timed: Sequence[Callable[[], float]],
    *,
    seconds: float = SECONDS,
    fewest: int = FEWEST,
    most: int = MOST,
) -> list[list[float]]:
    """The seconds that each one says it took, by turn. A first turn compiles, and is not counted; nor is a second,
    which says how long a turn takes."""
    for one in timed:
        one()
    began = time.perf_counter()
    for one in timed:
        one()
    took = time.perf_counter() - began
    times: list[list[float]] = [[] for _ in timed]
    for turn in range(max(fewest, min(most, int(seconds / took)))):
        for i in range(len(timed)):
            which = (turn + i) % len(timed)
            times[which].append(timed[which]())
    return times


def ratio(times: Sequence[float], by: Sequence[float]) -> float:
    """The median of the ratios of turns that follow each other."""
    return statistics.median(a / b for a, b in zip(times, by, strict=True))


def milliseconds(times: Sequence[float]) -> str:
    """Median and range."""
    return f"{statistics.median(times) * 1e3:.2f} ms ({min(times) * 1e3:.2f} to {max(times) * 1e3:.2f})"
