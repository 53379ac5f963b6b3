"""A graph as it fills memory in a session on CPU."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...analysis.cost.running_order import running_order
from ...core.graph import Graph
from ...core.primitives import CPU
from . import broadcasting, host_clearing, transposing


@dataclass(frozen=True)
class _OnCpu:
    target: str = CPU
    cleared: dict[str, list[str]] = field(default_factory=dict)


def as_run(graph: Graph) -> Graph:
    """A copy of a graph, its nodes in the order in which they run."""
    copy = graph.clone()[0]
    to_run(copy)
    return copy


def to_run(graph: Graph) -> None:
    """Makes a graph what :func:`as_run` makes of a copy."""
    here = _OnCpu()
    for lowering in (host_clearing, broadcasting, transposing):
        if lowering.applies(graph, here):
            lowering.run(graph, here)
    for part in graph.all_graphs():
        part.reorder(running_order(part))
