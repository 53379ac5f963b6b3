"""The measurements of a program: whether it has some, and how they are taken out again."""

from __future__ import annotations

from ...ir.analysis.functions.calls import forget_unreached
from ...ir.core.program import Program
from ...ir.rewrite.effects.editing import Effects


def is_monitored(program: Program) -> bool:
    """Whether ``monitor`` has put measurements into the program."""
    return any(variable.role == "monitor" for variable in program.state.values())


def drop_monitors(program: Program) -> None:
    """Takes the measurements out of ``program``: the effects that write nothing but what is measured, and all that only
    these need."""
    measured = {name for name, variable in program.state.items() if variable.role == "monitor"}
    for graph in program.graphs.values():
        fx = Effects(graph)
        fx.drop([e for e in fx.list if e.writes and all(state.name in measured for state in e.writes)])
        fx.commit()
        graph.forget_unused_states()
        forget_unreached(graph)
    program.drop_state(measured)
