"""A training cell that scales its loss by itself."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.analysis.training.anatomy import anatomy
from ...ir.analysis.training.gradient_path import gradient_paths
from ...ir.analysis.training.loss_multipliers import loss_multipliers
from ...ir.core.errors import Error
from ...ir.core.names import LOSS_SCALE
from ...ir.core.program import Program
from .finding import Finding


def own_loss_scale(program: Program) -> Iterator[Finding]:
    """Of graphs that were not compiled yet: gradients that leave the backward part multiplied, or are divided by the
    training cell or its optimizer before their update."""
    if program.pipeline:
        return
    for name, graph in program.graphs.items():
        try:
            found = anatomy(graph)
            paths = gradient_paths(graph, found)
        except Error:
            continue  # who compiles it is told why
        multipliers = loss_multipliers(found) or ()
        sens = next((m for m in multipliers if isinstance(m, float)), 1.0)  # the first is that of the seeds alone
        scale = None if sens == 1 else sens
        divided = bool(paths) and all(any(p.stage == "unscale" for p in path.points) for path in paths)
        if scale is None and not divided and LOSS_SCALE not in graph.outputs:
            continue
        by = f" by {scale:g}" if scale is not None else ""
        undone = ", and divides gradients again" if divided else ", and nothing divides the gradients again"
        yield Finding(
            "loss scale",
            f"graph '{name}' scales its loss{by} by itself (sens of TrainOneStepCell, or a loss-scale cell){undone}",
            "Export without it, and compile with boost-compile --loss-scale dynamic, which tells overflow and unscales"
            if divided or LOSS_SCALE in graph.outputs
            else "Export without it; it multiplies every step but those of optimizers that normalise gradients",
        )
