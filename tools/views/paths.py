"""The way of each gradient from the backward part to its update: its points, their stages, who takes it on."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.analysis.training.gradient_path import gradient_paths, is_fed
from ...ir.core.graph import Node
from ...ir.core.naming import spell
from .analysed import Analysed


def path_lines(view: Analysed) -> Iterator[str]:
    """AnatomyError where the graph has no accumulators whose gradients it takes, and is no training graph."""
    marked = is_fed(view.graph)
    for path in gradient_paths(view.graph, None if marked else view.anatomy()):
        uses = [use for point in path.points for use in (*point.takers, *point.measures)]
        nodes = [v for point in path.points for v in point.values if isinstance(v, Node)]
        if not view.keeps([*nodes, *(user for user, _ in uses)]):
            continue
        yield f"weight %{spell(path.weight)}{'' if path.is_sum else ', whose summands are used apart'}"
        for i, point in enumerate(path.points):
            stage = point.stage or ("passes" if i else "gradient")
            yield f"  {stage} {' + '.join(map(view.name, point.values))}"
            if point.measures:
                yield f"    measured by {view.uses(point.measures)}"
            if point.takers:
                yield f"    taken by {view.uses(point.takers)}"
