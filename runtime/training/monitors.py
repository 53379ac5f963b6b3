"""What the monitors of a program have measured, read from its state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ...ir.core.errors import PassError
from ...ir.core.names import MONITORED_CYCLES, WATCHED, monitor_of
from ...ir.core.program import Program
from ..lowering.idle import measured_every

if TYPE_CHECKING:
    import numpy as np

PARTS, MEAN, MICRO_BATCHES = (
    monitor_of("noise-scale.parts"),
    monitor_of("noise-scale.mean"),
    monitor_of("micro-batches"),
)


@dataclass(frozen=True, slots=True)
class Readings:
    """What was measured in one cycle.

    ``cycle`` is its number in the training, from 1; 0 where none was measured yet. ``values`` has a number for each
    weight, by kind (``gradient-norm.raw``, ``gradient-norm.update``, ``weight-norm``, ``update-ratio``, ``non-finite``,
    ``noise-scale``). ``noise_scale`` is that of all weights together. Noise scales count micro-batches: times
    the samples of one they are the batch size beyond which more samples bring little. They are NaN where the gradients
    of the cycle do not tell, as those of a single micro-batch do not.
    """

    cycle: int
    values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    noise_scale: float | None = None

    def norm(self, kind: str, match: str = "*") -> float:
        """The norm of all weights, or gradients, whose names match a glob, as one vector: of a scope, say."""
        return math.sqrt(sum(v * v for name, v in self.values[kind].items() if fnmatchcase(name, match)))


def last_measured(program: Program, cycles: int) -> int:
    """The last cycle that was measured, of so many."""
    return cycles - cycles % measured_every(program)


def check_monitored(program: Program) -> None:
    """PassError for a program without monitors, or with such as cannot be told apart."""
    if MONITORED_CYCLES not in program.state:
        raise PassError("the program measures nothing: compile it with 'monitor', such as monitor{every=10}")


def read_monitors(program: Program, read: Callable[[Iterable[str]], Mapping[str, Any]]) -> Readings:
    """What the program has measured last; ``read`` gives the arrays of some states."""
    check_monitored(program)
    vectors = {name: v.info[WATCHED] for name, v in program.state.items() if WATCHED in v.info}
    more = [name for name in (MONITORED_CYCLES, MICRO_BATCHES) if name in program.state]
    arrays = read([*vectors, *more])
    values = {
        name.removeprefix(monitor_of("")): dict(zip(weights, arrays[name].tolist(), strict=True))
        for name, weights in vectors.items()
        if name not in (PARTS, MEAN)
    }
    noise = None
    if PARTS in vectors:
        small, large = (arrays[name].astype("float64") for name in (PARTS, MEAN))
        count = float(arrays[MICRO_BATCHES])
        values["noise-scale"] = {
            weight: _noise_scale(s, b, count) for weight, s, b in zip(vectors[PARTS], small, large, strict=True)
        }
        noise = _noise_scale(small.sum(), large.sum(), count)
    return Readings(last_measured(program, int(arrays[MONITORED_CYCLES])), values, noise)


def _noise_scale(small: np.float64, large: np.float64, count: float) -> float:
    """The variance of the gradient of one micro-batch over the square of the gradient's mean, both without bias, from
    the mean square of the norms of ``count`` micro-batches and the squared norm of their mean (McCandlish et al. 2018,
    appendix A.1, with one micro-batch for the small batch). NaN where the estimated square is not above 0."""
    if count < 2:
        return math.nan
    signal = (count * large - small) / (count - 1)
    noise = (small - large) / (1 - 1 / count)
    return float(noise / signal) if signal > 0 else math.nan
