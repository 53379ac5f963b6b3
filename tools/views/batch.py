"""Where the batch is: the axes of every value that hold it, the constants that grow with it, and what cannot change."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.analysis.batch.rules import batch_of
from ...ir.analysis.batch.scalars import batch_scalars
from ...ir.analysis.batch.spans import Span
from ...ir.analysis.batch.sweep import LOST, Batch, Label
from ...ir.analysis.training.network import network_parts
from ...ir.core.graph import Node
from ...ir.rewrite.batch_size.resize import batch_inputs
from .analysed import Analysed


def batch_lines(view: Analysed) -> Iterator[str]:
    """The batch is axis 0 of the first input, as for the pass batch-size. PassError where no input has such an axis."""
    size, inputs = batch_inputs(view.graph)
    batch = batch_of(view.graph, inputs, size)
    scalars = batch_scalars(view.graph, batch, network_parts(view.graph), "refuse")
    sites: dict[Node, dict[int, str]] = {}
    for (user, i), axes in batch.constants.items():
        step = batch.steps.get((user, i))
        sites.setdefault(user, {})[i] = f"grows on {_label(axes)}" + (f" by {step}" if step else "")
    for (user, i), count in scalars.counts.items():
        sites.setdefault(user, {})[i] = f"is {_count(count, size)}"
    if view.chosen is None:
        yield f"batch {size}"
    for body in view.graph.all_graphs():
        if view.chosen is None:
            yield from (f"{view.name(v)} {_label(batch.labels[v])}" for v in body.inputs if batch.labels.get(v))
        for node in body:
            if view.keeps((node,)):
                yield from (f"{view.node(node)} {said}" for said in _node(node, batch, sites.get(node, {})))
                if node in scalars.stuck:
                    yield f"{view.node(node)} stuck: {scalars.stuck[node]}"


def _node(node: Node, batch: Batch, sites: dict[int, str]) -> Iterator[str]:
    label = batch.labels.get(node, {})
    if node in batch.stuck:
        yield f"stuck: {batch.stuck[node]}"
    elif label is LOST:
        yield "lost behind what is stuck"
    elif label:
        yield _label(label)
    for i, said in sorted(sites.items()):
        yield f"operand {i} {said}"
    if ends := batch.ends.get(node):
        yield f"ends with {_label(dict.fromkeys(sorted(ends), Span()))}"


def _label(label: Label) -> str:
    if isinstance(label, tuple):
        return f"({', '.join(_label(part) if part else '-' for part in label)})"
    return " and ".join(f"axis {axis}{_span(span)}" for axis, span in sorted(label.items()))


def _span(span: Span) -> str:
    parts = [str(span.outer)] * (span.outer != 1) + ["batch"] + [str(span.inner)] * (span.inner != 1)
    return f" = {' x '.join(parts)}" if len(parts) > 1 else ""


def _count(count: int, size: int) -> str:
    times = abs(count) // size
    number = "batch" if times == 1 else f"{times} x batch"
    return number if count > 0 else f"1 / ({number})" if times != 1 else "1 / batch"
