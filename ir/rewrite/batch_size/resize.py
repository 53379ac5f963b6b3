"""A graph for another batch size: what has to change, or why it cannot."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import prod

from ...analysis.batch.axes import BatchAxes
from ...analysis.batch.kinds import DIVIDES, MULTIPLIES, Kinds, multiple_of, numbers
from ...analysis.batch.rules import reduced_axes, shape_of
from ...analysis.derivative.linear_operands import linear_in
from ...analysis.training.network import BACKWARD, FORWARD, network_parts
from ...core.errors import PassError, nearest
from ...core.graph import Graph, Input, Node, Use
from ...core.names import BACKWARD_ID, FORWARD_ID
from ...core.primitives import Family, named
from ...core.wording import agreed, counted
from .rewrite import Rewrite

_MOST_SHOWN = 20
EXPORT = "export it at the size that you want"


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


@dataclass(frozen=True)
class Followed:
    """``counts``: constant operands that are a multiple of the batch size or, where negative, one over it. ``stuck``:
    the nodes that do not let the batch change, with the reason."""

    axes: BatchAxes
    counts: dict[Use, int] = field(default_factory=dict)
    stuck: dict[Node, str] = field(default_factory=dict)


def follow(graph: Graph, inputs: Mapping[str, int], size: int) -> Followed:
    """What holds the batch in a graph, its functions included. ``inputs``: by name, the axis that is the batch.

    The divisor in the derivative of a mean is proven by the mark that links its node with the mean. Of any other number
    that may be the batch size, or one over it, the file says no more than the number: its node is stuck.
    """
    axes, parts = BatchAxes(graph, inputs, size), network_parts(graph)
    nodes = list(graph.all_nodes())
    forward = [n for n in nodes if parts.get(n) == FORWARD] if BACKWARD in parts.values() else nodes
    doubts = Kinds(axes, forward).doubts
    found = Followed(axes, {}, dict(axes.stuck))
    derived: dict[object, list[Node]] = {}
    literal = set[float]()
    for node in forward:
        derived.setdefault(node.primal.get(FORWARD_ID), []).append(node)
        literal |= {n for i, value in numbers(node) if (node, i) not in doubts for n in (abs(value), _inverse(value))}
    means = named(Family.MEAN)
    for node in nodes if len(forward) < len(nodes) else ():
        if parts.get(node) != BACKWARD:
            continue
        linear = {i for positions in linear_in(node) or () for i in positions}
        scales = node.op.name in DIVIDES | MULTIPLIES
        of = [
            n
            for n in derived.get(node.primal.get(BACKWARD_ID), ())
            if n.op.name in means and BACKWARD_ID in node.primal
        ]
        for i, value in numbers(node):
            count = multiple_of(value, size)
            divides = (count > 0) == (node.op.name in DIVIDES and i > 0) if scales else count < 0
            if not count or not (scales or i in linear):
                continue
            if divides and any(abs(count) == _averaged(mean, axes) for mean in of):
                found.counts[node, i] = count
            elif divides and abs(value) not in literal and (not of or any(_averaged(mean, axes) for mean in of)):
                doubts[node, i] = (count, "scales a derivative")
    for (node, i), (count, what) in doubts.items():
        number = str(count) if count > 0 else f"1/{-count}"
        found.stuck.setdefault(
            node, f"its constant operand {i} is {number} and {what}: that may be the batch size or not"
        )
    return found


def _averaged(mean: Node, axes: BatchAxes) -> int:
    """How many elements a mean is taken of, the batch being among its axes."""
    over, shape = reduced_axes(mean)[0], shape_of(mean.operand(0).type)
    return prod(shape[k] for k in over) if over & set(axes.of(mean, 0)) else 0


def _inverse(value: float) -> float:
    import numpy as np

    return float(np.float32(1 / abs(value))) if abs(value) > 1e-30 else 0.0


def plan_resize(graph: Graph, old: int, inputs: Mapping[str, int], size: int | None, runs: bool = True) -> Rewrite:
    """The rewrite that makes a graph take ``size`` samples (None: any number) where it took ``old``. ``inputs``: the
    axis of each input that is the batch. ``runs``: see :class:`.rewrite.Rewrite`.

    Nothing changes before :meth:`.rewrite.Rewrite.apply`. PassError that lists every node that does not allow it.
    """
    if old == 1 and BACKWARD in network_parts(graph).values():
        raise PassError(
            f"graph '{graph.name}' was exported with a batch of 1: which of its ones are the batch, and which "
            "divisors, cannot be told in a backward part. Export it with a batch of 2 or more."
        )
    found = follow(graph, inputs, old)
    rewrite = Rewrite(graph, found.axes, found.counts, size, runs)
    _refuse(graph, old, {**found.stuck, **rewrite.stuck})
    return rewrite


def _extent(value: Input, axis: int) -> int | None:
    shape = shape_of(value.type)
    return shape[axis] if axis < len(shape) else None


def _refuse(graph: Graph, size: int, stuck: Mapping[Node, str]) -> None:
    """PassError that lists every node that keeps the batch from changing."""
    if not stuck:
        return
    lines = [f"  %{n.name} ({n.op.name}{', ' + n.scope if n.scope else ''}): {stuck[n]}"
             for n in graph.all_nodes() if n in stuck]  # fmt: skip
    more = [f"  and {len(lines) - _MOST_SHOWN} more"] if len(lines) > _MOST_SHOWN else []
    raise PassError(
        f"graph '{graph.name}' cannot change its batch of {size}; {counted(len(stuck), 'node')} "
        f"{agreed(len(stuck), 'does', 'do')} not allow it (a file says no more: {EXPORT}):\n"
        + "\n".join(lines[:_MOST_SHOWN] + more)
    )
