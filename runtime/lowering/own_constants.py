"""On each target: an operation that writes into a constant gets a copy of it.

MindSpore 2.10 writes into the constant itself, so the next step, and whoever shares the constant, starts from what the
last one left.
"""

from __future__ import annotations

from ...ir.core.graph import Graph
from ...ir.core.wording import counted
from ...ir.rewrite.in_place import copy_constants, written_constants
from .context import Context


def applies(graph: Graph, context: Context) -> bool:
    return any(written_constants(body) for body in graph.all_graphs())


def run(graph: Graph, context: Context) -> str:
    moved = sum(map(copy_constants, graph.all_graphs()))
    return f"{counted(moved, 'write into a constant', 'writes into constants')} moved to copies"
