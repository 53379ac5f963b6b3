"""A graph for another batch size: what has to change, or why it cannot."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...analysis.batch.rules import batch_of
from ...analysis.batch.scalars import Scalars, batch_scalars
from ...analysis.batch.sweep import Batch
from ...analysis.training.network import BACKWARD, network_parts
from ...core.errors import PassError, nearest
from ...core.graph import Graph, Input, Node
from ...core.types import TensorType
from ...core.wording import agreed, counted
from .rewrite import Rewrite

_MOST_SHOWN = 20


def batch_inputs(graph: Graph, axis: int = 0, inputs: Collection[str] = ()) -> tuple[int, dict[str, int]]:
    """The batch size, and the inputs that hold it with the axis: those of ``inputs``, or without them all whose
    ``axis`` is as long as that of the first that has one. PassError where there are none, or their sizes differ."""
    have = {v.name: _extent(v, axis) for v in graph.inputs}
    for name in inputs:
        if name not in have:
            raise PassError(f"graph '{graph.name}' has no input '{name}'{nearest(name, list(have))}")
    named = {n: have[n] for n in inputs} if inputs else have
    sizes = [d for d in named.values() if d is not None]
    if not sizes:
        raise PassError(f"graph '{graph.name}': no input has an axis {axis} that could be the batch")
    size = sizes[0]
    if size < 1:
        raise PassError(f"graph '{graph.name}': axis {axis} of its inputs is open already; any batch fits")
    wrong = [n for n, d in named.items() if d != size] if inputs else []
    if wrong:
        raise PassError(
            f"graph '{graph.name}': input '{wrong[0]}' does not have {counted(size, 'sample')} on axis {axis}"
        )
    return size, {n: axis for n, d in named.items() if d == size}


def plan_resize(
    graph: Graph,
    old: int,
    inputs: Mapping[str, int],
    size: int | None,
    constants: str = "refuse",
    runs: bool = True,
) -> Rewrite:
    """The rewrite that makes a graph take ``size`` samples (None: any number) where it took ``old``. ``inputs``: the
    axis of each input that is the batch. ``constants``: what a number is that may be the batch size but need not be:
    ``batch``, ``literal``, or a reason to ``refuse``. ``runs``: see :class:`.rewrite.Rewrite`.

    Nothing changes before :meth:`.rewrite.Rewrite.apply`. PassError that lists every node that does not allow it.
    """
    batch = batch_of(graph, inputs, old)
    parts = network_parts(graph)
    if old == 1 and BACKWARD in parts.values():
        raise PassError(
            f"graph '{graph.name}' was exported with a batch of 1: which of its ones are the batch, and which "
            f"divisors, cannot be told in a backward part. Export it with a batch of 2 or more."
        )
    scalars = batch_scalars(graph, batch, parts, constants)
    rewrite = Rewrite(graph, batch, scalars, size, runs)
    _refuse(graph, batch, scalars, rewrite.stuck)
    return rewrite


def _extent(value: Input, axis: int) -> int | None:
    shape = value.type.shape if isinstance(value.type, TensorType) else ()
    return shape[axis] if axis < len(shape) else None


def _refuse(graph: Graph, batch: Batch, scalars: Scalars, others: dict[Node, str]) -> None:
    """PassError that lists every node that keeps the batch from changing."""
    stuck = {**batch.stuck, **scalars.stuck, **others}
    if not stuck:
        return
    lines = [f"  %{n.name} ({n.op.name}{', ' + n.scope if n.scope else ''}): {why}" for n, why in stuck.items()]
    more = [f"  and {len(lines) - _MOST_SHOWN} more"] if len(lines) > _MOST_SHOWN else []
    raise PassError(
        f"graph '{graph.name}' cannot change its batch of {batch.size}; {counted(len(stuck), 'node')} "
        f"{agreed(len(stuck), 'does', 'do')} not allow it:\n" + "\n".join(lines[:_MOST_SHOWN] + more)
    )
