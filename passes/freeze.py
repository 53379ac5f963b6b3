"""Freeze: weights that are no longer trained at all."""

from __future__ import annotations

from ..ir.analysis.cost.flops import estimated_flops
from ..ir.analysis.training.gradient_path import gradient_paths, updating_graphs
from ..ir.core.errors import PassError
from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.wording import counted, print_bytes
from .framework.base import Pass
from .framework.options import option
from .step.freezing import freeze_weights
from .step.matching import trained_matching


class Freeze(Pass):
    """Leaves the weights that match as they are, for good: their updates, optimizer state and gradients go.

    The backward part loses everything that only these gradients needed. Running statistics of frozen BatchNorms go on,
    as natively. ``gradient-freeze`` freezes in some windows only.

    Changes training: it is that of a network whose matching weights have ``requires_grad=False``.

    Source: ``Parameter.requires_grad`` of MindSpore, for a training graph that is exported already.
    """

    name = "freeze"
    preserves = False
    early = True
    match: tuple[str, ...] = option(help="globs over the names of the weights that are not trained")

    def run(self, program: Program) -> PassResult:
        result = self.result()
        if program.schedule.choice is not None:
            raise PassError("the program has variants (gradient-freeze): ask for both in one pipeline")
        updating = updating_graphs(program)
        trained = list(dict.fromkeys(path.weight for graph in updating for path in gradient_paths(graph)))
        frozen = trained_matching(program, self.match, trained)
        if len(frozen) == len(trained):
            raise PassError(f"all {counted(len(trained), 'trained weight')} would be frozen: nothing is left to train")
        before = sum(estimated_flops(graph) for graph in program.graphs.values())
        nodes = program.total_nodes()
        gone = freeze_weights(program, frozen)
        saved = 100 * (1 - sum(estimated_flops(graph) for graph in program.graphs.values()) / max(before, 1))
        result.matched = result.changed = len(frozen)
        result.statistics = {
            "weights frozen": len(frozen),
            "nodes removed": nodes - program.total_nodes(),
            "state removed": print_bytes(gone),
        }
        result.summary = (
            f"{counted(len(frozen), 'weight')} of {len(trained)} frozen; {saved:.0f} % of the estimated FLOPs and "
            f"{print_bytes(gone)} of optimizer state less"
        )
        return result
