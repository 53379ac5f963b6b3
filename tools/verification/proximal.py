"""Optimizers that shrink a weight by their rate, besides what the gradient does."""

from __future__ import annotations

from ...ir.core.program import Program


def proximal_update(base: Program) -> str | None:
    """An update that shrinks the weight by its rate, so that small ones stop at zero."""
    names = (node.op.name for node in base.all_nodes())
    return next((name for name in names if "Proximal" in name or "Ftrl" in name), None)
