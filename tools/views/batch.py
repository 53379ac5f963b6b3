"""Where the batch is: the axes of every value that hold it, the constants that grow with it, and what cannot change."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.analysis.batch.axes import BatchAxes
from ...ir.analysis.batch.spans import Axes, Span
from ...ir.core.graph import Node, Value
from ...ir.core.types import TupleType
from ...ir.rewrite.batch_size.resize import Followed, batch_inputs, follow
from .analysed import Analysed


def batch_lines(view: Analysed) -> Iterator[str]:
    """The batch is axis 0 of the first input, as for the pass batch-size. PassError where no input has such an axis."""
    size, inputs = batch_inputs(view.graph)
    found = follow(view.graph, inputs, size)
    axes = found.axes
    if view.chosen is None:
        yield f"batch {size}"
    for body in view.graph.all_graphs():
        if view.chosen is None:
            yield from (f"{view.name(v)} {said}" for v in body.inputs if (said := _label(v, axes)))
        for node in body:
            if view.keeps((node,)):
                yield from (f"{view.node(node)} {said}" for said in _node(node, found, size))


def _node(node: Node, found: Followed, size: int) -> Iterator[str]:
    axes = found.axes
    if node not in axes.stuck:
        if label := _label(node, axes):
            yield label
        for i in range(node.num_operands):
            if held := axes.constants.get((node, i)):
                yield f"operand {i} grows on {_axes(held)}"
            if (node, i) in found.counts:
                yield f"operand {i} is {_count(found.counts[node, i], size)}"
    if node in found.stuck:
        yield f"stuck: {found.stuck[node]}"


def _label(value: Value, axes: BatchAxes, path: tuple[int, ...] = ()) -> str:
    if value not in axes.holding:
        return ""
    if isinstance(value.type, TupleType) and not path:
        return f"({', '.join(_label(value, axes, (k,)) or '-' for k in range(len(value.type.elements)))})"
    return _axes(axes.held.get((value, path), {}))


def _axes(axes: Axes) -> str:
    return " and ".join(f"axis {axis}{_span(span)}" for axis, span in sorted(axes.items()))


def _span(span: Span) -> str:
    parts = [str(span.outer)] * (span.outer != 1) + ["batch"] + [str(span.inner)] * (span.inner != 1)
    return f" = {' x '.join(parts)}" if len(parts) > 1 else ""


def _count(count: int, size: int) -> str:
    times = abs(count) // size
    number = "batch" if times == 1 else f"{times} x batch"
    return number if count > 0 else f"1 / ({number})" if times != 1 else "1 / batch"
