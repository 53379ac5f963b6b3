"""Inputs that nothing uses."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.analysis.effects.tokens import orders_only
from ...ir.core.program import Program
from ...ir.core.wording import agreed, counted
from .finding import Finding, named


def unused_inputs(program: Program) -> Iterator[Finding]:
    """Of all graphs that take a micro-batch: a split step needs the labels in the graph that accumulates alone."""
    taking = [g for g in program.graphs.values() if g.inputs]
    used = {v.name for g in taking for v in g.inputs if any(not orders_only(user, i) for user, i in v.use_sites())}
    unused = list(dict.fromkeys(v.name for g in taking for v in g.inputs if v.name not in used))
    if unused:
        yield Finding(
            "inputs",
            f"{counted(len(unused), 'input')} {agreed(len(unused), 'has', 'have')} no effect: {named(unused)}",
            "Give it all the same, it must be there; or leave it out of construct and export again",
        )
