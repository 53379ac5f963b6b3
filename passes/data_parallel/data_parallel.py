"""Data parallelism: every rank trains on its own part of the data, and all update by the same gradients."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...ir.analysis.training.gradient_path import updating_graphs
from ...ir.core.errors import PassError
from ...ir.core.names import LOCAL
from ...ir.core.program import Program, StateVariable
from ...ir.core.report import PassResult
from ...ir.core.wording import agreed, counted, print_bytes
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.ranks.collectives import WORLD, Traffic, cycle_traffic
from ..framework.base import Pass
from ..framework.options import option
from ..step.exported_reductions import FileReductions, take_out_reductions
from ..step.tally import tallies
from .exchange import Exchange, reduce_tally
from .undo import undo

MEGABYTE = 2**20


class DataParallel(Pass):
    """Sums the gradients of all ranks, once a window, before anything else is done to them.

    Each gradient that updates a weight is replaced by its sum over the ranks, in float32 where it is half. So weights
    that began equal stay equal in every bit. ``mean`` divides by the count of all ranks together, which is exchanged
    too. So the program knows no number of ranks, and short windows and dropped micro-batches weigh what they should.
    With ``mean=false`` the gradient is that mean times the number of ranks.

    An export made in DATA_PARALLEL mode reduces its gradients itself: the pass takes that out. Gradients smaller than
    ``fusion`` megabytes are exchanged together.

    Preserves training: the weights are those of one process that trains on the concatenated micro-batches of all ranks
    (with losses that are means over samples), up to rounding. BatchNorm takes its statistics from each rank's own data.

    Source: MindSpore's ``DistributedGradReducer``, once a window instead of once a micro-batch.
    """

    name = "data-parallel"
    at_stage = "all-reduce"
    late = True
    redone = True
    mean: bool | None = option(None, help="average over ranks, not sum (as the file does, else true)")
    fusion: float = option(4.0, help="megabytes that are exchanged together; 0: each gradient alone", minimum=0)

    def undo(self, program: Program) -> None:
        for graph in program.graphs.values():
            undo(graph)

    def run(self, program: Program) -> PassResult:
        result = self.result()
        before = cycle_traffic(program)
        updating = updating_graphs(program)
        exported = [take_out_reductions(graph) for graph in updating]
        untouched = {name for found in exported for name in found.left_alone}
        for state in program.state.values():
            if untouched & {state.name, state.weight}:
                state.info[LOCAL] = True
        result.options["mean"] = mean = self._mean(program, exported)
        exchanges = [Exchange(program, graph, mean, int(self.fusion * MEGABYTE)) for graph in updating]
        for exchange in exchanges:
            exchange.run()
        if program.schedule.search is not None:
            _sum_losses(program, program.schedule.search.judge)
        self._report(result, program, exchanges, before)
        _report_exported(result, exported)
        return result

    def _mean(self, program: Program, exported: Sequence[FileReductions]) -> bool:
        mean = self.mean
        if mean is None:
            mean = all(found.mean for found in exported)
        elif any(found.kept for found in exported):
            raise PassError(
                "the file multiplies gradients behind its own sums over ranks by a constant in which 1/ranks may be "
                f"one factor of several: leave out mean={str(mean).lower()}, and what the file does stays"
            )
        if program.schedule.search is not None and not mean:
            raise PassError("a line search compares mean losses, so the gradients must be means too: use mean=true")
        return mean

    @staticmethod
    def _report(result: PassResult, program: Program, exchanges: Sequence[Exchange], before: Traffic) -> None:
        reduced = {name for exchange in exchanges for name in exchange.reduced}
        fixed = {name for exchange in exchanges for name in exchange.fixed}
        for name, variable in program.state.items():
            if variable.role == "weight" and name not in reduced:
                result.miss(name, _why_not(variable, fixed))
        after = cycle_traffic(program)
        result.matched = result.changed = len(reduced)
        result.statistics = {
            "gradients": len(reduced),
            "collectives a window before": before.count,
            "bytes a window before": before.nbytes,
            "collectives a window": after.count,
            "bytes a window": after.nbytes,
        }
        collectives = max((exchange.collectives for exchange in exchanges), default=0)
        result.summary = (
            f"{counted(len(reduced), 'gradient')} in {counted(collectives, 'collective')}; a window exchanges "
            f"{print_bytes(after.nbytes)} ({print_bytes(before.nbytes)} before)"
        )


def _sum_losses(program: Program, judge: str) -> None:
    """A line search judges by the losses of all ranks."""
    graph = program.graphs[judge]
    fx = Effects(graph)
    for _, node in list(tallies(graph)):
        reduce_tally(graph, node, WORLD[program.target])
    fx.commit()


def _report_exported(result: PassResult, exported: Sequence[FileReductions]) -> None:
    kept = max((found.kept for found in exported), default=0)
    if kept:
        result.miss(
            f"{counted(kept, 'factor')} of the file",
            "may be more than 1/ranks, and kept: right for as many ranks as the file was exported for",
        )
    replaced = max((found.number for found in exported), default=0)
    if replaced:
        result.summary += f"; {counted(replaced, 'reduction')} of the file {agreed(replaced, 'is', 'are')} replaced"


def _why_not(weight: StateVariable, fixed: Collection[str]) -> str:
    if weight.info.get(LOCAL):
        return "the file reduces other gradients and not this one: each rank keeps its own weight"
    if weight.name in fixed:
        return "its gradient is a constant, the same on every rank"
    if weight.trainable is False:
        return "nothing trains it"
    return "the loss does not depend on it, or nothing updates it: there is no gradient"
