"""Which axes of every value of a graph hold the batch."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.graph import Graph
from .rules import grow, propagate
from .sweep import Analysis, Batch


def batch_of(graph: Graph, inputs: Mapping[str, int], size: int) -> Batch:
    """The batch of a main graph, its functions included. ``inputs``: by name, the axis that is the batch, of ``size``
    elements. Linear in nodes for each sweep; there are two, and one more for each chain of constants that must grow."""
    return Analysis(graph, inputs, size, (propagate, grow)).run()
