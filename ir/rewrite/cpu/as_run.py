"""A graph as it fills memory in a session on CPU."""

from __future__ import annotations

from dataclasses import dataclass

from ...analysis.cost.running_order import running_order
from ...core.graph import Graph
from ...core.primitives import CPU
from . import broadcasting, clearing, staggering


@dataclass(frozen=True)
class _OnCpu:
    target: str = CPU


def as_run(graph: Graph) -> Graph:
    """A copy of a graph, its nodes in the order in which they run."""
    graph = graph.clone()[0]
    for lowering in (broadcasting, clearing, staggering):
        if lowering.applies(graph, _OnCpu()):
            lowering.run(graph, _OnCpu())
    for part in graph.all_graphs():
        part.reorder(running_order(part))
    return graph
