"""What accumulation decides about a step before anything is rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.analysis.batch.joins import Beside
from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.analysis.training.stages import GradientPath, Point
from ...ir.core.graph import Constant, Value
from ...ir.core.program import Entry
from ...ir.core.types import TensorType
from ..step.split import Crossing, Cut


@dataclass(frozen=True, slots=True)
class Kept:
    """State that carries a crossing value from one graph to another: ``accum.<weight>`` for a gradient. ``mean``: the
    update takes the mean of another value over the micro-batches."""

    crossing: Crossing
    name: str
    type: TensorType
    mean: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions. ``paths``: of the step's gradients, by weight. ``fixed``: the constants that some updates take for
    a gradient, by weight, and who takes them. ``weight``: what a micro-batch counts, if that is told, and what stands
    ``beside`` that.
    """

    found: TrainingAnatomy
    cut: Cut
    gradients: Sequence[Kept]
    carried: Sequence[Kept]
    paths: Mapping[str, GradientPath]
    fixed: Mapping[str, Point]
    weight: Value | None
    beside: Beside
    mean: bool
    cycle: tuple[Entry, ...]

    @property
    def fused(self) -> bool:
        """Whether a graph of the cycle has both sides: the ``step``."""
        return any(entry.graph == "step" for entry in self.cycle)


def fixed_gradients(found: TrainingAnatomy, paths: Mapping[str, GradientPath]) -> dict[str, Point]:
    """The constants that some updates take for a gradient, by weight, and who takes them."""
    starts = {weight: path.points[0] for weight, path in paths.items()}
    return {
        weight: start
        for weight, start in starts.items()
        if isinstance(start.values[0], Constant) and start.graph is found.graph
    }
