"""Batch size: a graph that was exported for one batch, rewritten for another."""

from __future__ import annotations

from ..ir.batch.analysis import Batch, batch_of
from ..ir.batch.rewrite import Rewrite
from ..ir.batch.scalars import Scalars, batch_scalars
from ..ir.errors import OptionError, PassError, nearest
from ..ir.graph import Graph
from ..ir.network import BACKWARD, network_parts
from ..ir.program import Program
from ..ir.report import PassResult
from ..ir.types import TensorType
from ..ir.values import Input, Node
from .base import Pass
from .options import option

_MOST_SHOWN = 20


class BatchSize(Pass):
    """Rewrites a graph for another batch size than it was exported with, or for any.

    The batch is followed from the inputs through every node; what cannot be followed, or cannot change, is an error
    that lists all such nodes. The result is the graph that an export at the new size would have given. Divisors in
    derivatives of means follow; see :mod:`..ir.batch.scalars` for numbers that nothing proves.

    Changes training: a step sees another number of samples.
    """

    name = "batch-size"
    preserves = False
    early = True
    size: int | None = option(None, help="samples in a batch", minimum=1)
    dynamic: bool = option(False, help="any number of samples, known when the graph runs")
    axis: int = option(0, help="the axis of the inputs that is the batch", minimum=0)
    inputs: tuple[str, ...] = option((), help="which inputs hold the batch; without it all of the first one's size")
    constants: str = option(
        "refuse",
        help="what a number is that may be the batch size but need not be",
        choices=("refuse", "batch", "literal"),
    )

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
            old, inputs = self._batch_inputs(graph)
            if old == self.size:
                result.miss(f"{graph.name}", f"its batch is {old} already")
                continue
            batch = batch_of(graph, inputs, old)
            parts = network_parts(graph)
            if old == 1 and BACKWARD in parts.values():
                raise PassError(
                    f"graph '{graph.name}' was exported with a batch of 1: which of its ones are the batch, and which "
                    f"divisors, cannot be told in a backward part. Export it with a batch of 2 or more."
                )
            scalars = batch_scalars(graph, batch, parts, self.constants)
            rewrite = Rewrite(graph, batch, scalars, self.size)
            _refuse(graph, batch, scalars, rewrite.stuck)
            rewrites.append(rewrite)
            result.matched += 1
            result.statistics["from"] = old
            result.statistics["inputs"] = len(inputs)
        for rewrite in rewrites:
            result.changed += rewrite.apply()
        if rewrites:
            target = "any size" if self.size is None else str(self.size)
            result.summary = f"batch {result.statistics['from']} → {target}: {result.changed} values"
        return result

    def _batch_inputs(self, graph: Graph) -> tuple[int, dict[str, int]]:
        """The batch size, and the inputs that hold it with the axis."""
        have = {v.name: self._extent(v) for v in graph.inputs}
        for name in self.inputs:
            if name not in have:
                raise PassError(f"graph '{graph.name}' has no input '{name}'{nearest(name, list(have))}")
        named = {n: have[n] for n in self.inputs} if self.inputs else have
        sizes = [d for d in named.values() if d is not None]
        if not sizes:
            raise PassError(f"graph '{graph.name}': no input has an axis {self.axis} that could be the batch")
        size = sizes[0]
        if size < 1:
            raise PassError(f"graph '{graph.name}': axis {self.axis} of its inputs is open already; any batch fits")
        wrong = [n for n, d in named.items() if d != size] if self.inputs else []
        if wrong:
            raise PassError(
                f"graph '{graph.name}': input '{wrong[0]}' does not have {size} samples on axis {self.axis}"
            )
        return size, {n: self.axis for n, d in named.items() if d == size}

    def _extent(self, value: Input) -> int | None:
        shape = value.type.shape if isinstance(value.type, TensorType) else ()
        return shape[self.axis] if self.axis < len(shape) else None


def _refuse(graph: Graph, batch: Batch, scalars: Scalars, others: dict[Node, str]) -> None:
    """PassError that lists every node that keeps the batch from changing."""
    stuck = {**batch.stuck, **scalars.stuck, **others}
    if not stuck:
        return
    lines = [f"  %{n.name} ({n.op.name}{', ' + n.scope if n.scope else ''}): {why}" for n, why in stuck.items()]
    more = [f"  and {len(lines) - _MOST_SHOWN} more"] if len(lines) > _MOST_SHOWN else []
    raise PassError(
        f"graph '{graph.name}' cannot change its batch of {batch.size}; {len(stuck)} node(s) do not allow it:\n"
        + "\n".join(lines[:_MOST_SHOWN] + more)
    )
