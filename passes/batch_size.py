"""Batch size: a graph that was exported for one batch, rewritten for another."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.analysis.training.anatomy import anatomy
from ..ir.core.errors import OptionError, PassError
from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.wording import counted
from ..ir.rewrite.batch_size.resize import batch_inputs, plan_resize
from ..ir.rewrite.batch_size.rewrite import Rewrite
from ..ir.rewrite.settle_gradients import settle_gradients
from .framework.base import Pass
from .framework.options import option


class BatchSize(Pass):
    """Rewrites a graph for another batch size than it was exported with, or for any.

    The pass follows the batch from the inputs through every node. If it cannot follow or change a node, it raises an
    error that lists all such nodes. The result is the graph that an export at the new size would have given. Divisors
    in derivatives of means follow. A number that may be the batch size but need not be, or that may number its samples,
    is not in the file's words: export at the size that you want. A captured cell is exported again for that.

    Changes training: a step sees another number of samples.

    Source: the native export at the new size, which the result equals node by node.
    """

    name = "batch-size"
    preserves = False
    early = True
    size: int | None = option(None, help="samples in a batch", minimum=1)
    dynamic: bool = option(False, help="any number of samples, known when the graph runs")
    axis: int = option(0, help="the axis of the inputs that is the batch", minimum=0)
    inputs: tuple[str, ...] = option((), help="which inputs hold the batch; without it all of the first one's size")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.size is None) == (not self.dynamic):
            raise OptionError(f"pass '{self.name}': give either size or dynamic=true")

    def run(self, program: Program) -> PassResult:
        result = self.result()
        rewrites: list[Rewrite] = []
        for graph in program.graphs.values():
            if not graph.inputs:
                continue
            old, inputs = batch_inputs(graph, self.axis, self.inputs)
            if old == self.size:
                result.miss(f"{graph.name}", f"its batch is {old} already")
                continue
            try:
                rewrites.append(plan_resize(graph, old, inputs, self.size))
            except PassError:
                if self.size is None or program.live is None or program.reports:
                    raise
                self._export_again(program, inputs)
                result.changed += len(graph)
            result.matched += 1
            result.statistics["from"] = old
            result.statistics["inputs"] = len(inputs)
        for rewrite in rewrites:
            result.changed += rewrite.apply()
        if result.matched:
            target = "any size" if self.size is None else str(self.size)
            result.summary = f"batch {result.statistics['from']} → {target}: {counted(result.changed, 'value')}"
        return result

    def _export_again(self, program: Program, inputs: Mapping[str, int]) -> None:
        """Of what a file does not say, the live Cell that was captured knows everything."""
        assert program.live is not None
        assert self.size is not None
        made = program.live.exported_at(self.size, inputs)
        if {n: v.type for n, v in made.state.items()} != {n: v.type for n, v in program.state.items()}:
            raise PassError(f"with {counted(self.size, 'sample')} the captured cell has other states: capture it anew")
        for graph in made.graphs.values():
            settle_gradients(anatomy(graph))
        program.graphs = made.graphs
