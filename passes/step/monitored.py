"""The measurements of a program: whether it has some, and how they are taken out again."""

from __future__ import annotations

from ...ir.core.program import Program
from ...ir.rewrite.monitors import leave_out, measured_states


def is_monitored(program: Program) -> bool:
    """Whether ``monitor`` has put measurements into the program."""
    return bool(measured_states(program))


def drop_monitors(program: Program) -> None:
    """Takes the measurements out of ``program``."""
    measured = measured_states(program)
    for graph in program.graphs.values():
        leave_out(graph, measured)
    program.drop_state(measured)
