"""Optimizers that shrink a weight by their rate, besides what the gradient does."""

from __future__ import annotations

from ...ir.core.program import Program


def proximal_update(base: Program) -> str | None:
    """An update that shrinks the weight by its rate, so that small ones stop at zero."""
    for main in base.graphs.values():
        for graph in main.all_graphs():
            for node in graph:
                if "Proximal" in node.op.name or "Ftrl" in node.op.name:
                    return node.op.name
    return None
