"""Measurements, taken out of a graph: the effects that write nothing but what is measured, and what only these need."""

from __future__ import annotations

from collections.abc import Collection

from ..analysis.functions.calls import forget_unreached
from ..core.graph import Graph
from ..core.program import Program
from .effects.editing import Effects


def measured_states(program: Program) -> set[str]:
    """The states that hold what is measured."""
    return {name for name, variable in program.state.items() if variable.role == "monitor"}


def leave_out(graph: Graph, measured: Collection[str]) -> bool:
    """Takes the effects out that write these states and no others; whether there were some. A function that does more
    than that stays."""
    fx = Effects(graph)
    gone = [e for e in fx.list if e.writes and all(state.name in measured for state in e.writes)]
    fx.drop(gone)
    fx.commit()
    graph.forget_unused_states()
    forget_unreached(graph)
    return bool(gone)
