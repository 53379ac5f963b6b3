"""The words for what happens to a gradient between the backward part and its update: stages, marks, points of a path.

:mod:`.gradient_path` finds the paths, :mod:`ir.rewrite.stages` puts something on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ...core.graph import Graph, Node, Use, Value
from .loss_multipliers import Multiplier

RANK_CLIP = "rank-clip"
"""The stage at which each rank clips what it has for itself (``clip-gradients{each_rank=true}``)."""
CENTRALIZE = "centralize"
"""The stage at which a gradient loses its mean over some axes."""
TREATMENT = "treatment"
"""The stage at which a training cell is done with all else that it does to a gradient: its optimizer is handed this."""
STAGES = (
    *("accumulate", RANK_CLIP, "all-reduce", "unscale", "finite-check", TREATMENT, "clip", "weight-decay", CENTRALIZE),
    "update",
)
"""The stages of a gradient on its way to the weight, in the order in which they must stand."""


@dataclass(slots=True)
class Point:
    """The gradient after a stage: the values whose sum it is (one, but for weights used in several places), who takes
    them on, and who ``measures`` them (a norm for a later stage). ``stage`` is "" where it is still the raw one.
    ``follows``: whether an update follows from what a node computes; a cell may return a norm."""

    stage: str
    values: tuple[Value, ...]
    takers: list[Use] = field(default_factory=list)
    measures: list[Use] = field(default_factory=list)
    follows: Callable[[Node], bool] = lambda node: True

    @property
    def graph(self) -> Graph | None:
        """The graph in which new nodes that use the values stand."""
        return self.takers[0][0].graph if self.takers else None


@dataclass(slots=True)
class GradientPath:
    """The points of one gradient, in order; the first is where it leaves the backward part or the accumulators.
    ``sparse``: see :class:`.weights.WeightInfo`. ``optimizer``: the cell that updates by it, "" where none is told
    apart; ``doubtful``: the operators of cells whose scope tells nothing. ``multipliers``: what the derivative of the
    loss is multiplied by, where that was asked and can be told. ``assumed``: what nothing tells, in words. ``doubt``:
    the same, where another answer is as likely."""

    weight: str
    points: list[Point]
    sparse: bool = False
    optimizer: str = ""
    doubtful: tuple[str, ...] = ()
    multipliers: tuple[Multiplier, ...] | None = None
    assumed: str = ""
    doubt: str = ""

    def at(self, stage: str, graph: Graph | None = None) -> Point:
        """The last point in all stages up to and including ``stage``; ``graph``: the last one in that graph."""
        limit = STAGES.index(stage)
        best = self.points[0]
        for point in self.points:
            inside = graph is None or point.graph is graph
            if inside and point.stage and STAGES.index(point.stage) <= limit:
                best = point
        return best

    def has(self, stage: str) -> bool:
        return any(p.stage == stage for p in self.points)

    @property
    def is_sum(self) -> bool:
        """Whether the values are summands, which meet before the update begins, and not used for different updates."""
        return len(self.points[-1].values) == 1


def in_order(points: Iterable[Point]) -> bool:
    """Whether the stages of a path stand in their canonical order."""
    order = [STAGES.index(p.stage) for p in points if p.stage]
    return order == sorted(order)
