"""The step graph: what a program has before a pass splits it."""

from __future__ import annotations

from ...ir.core.errors import PassError
from ...ir.core.graph import Graph
from ...ir.core.program import Program
from ...ir.formats.storage.compiled import compiled_by


def the_step(program: Program, name: str) -> Graph:
    """The one graph of a program that is not split; :class:`PassError`, saying what pass ``name`` needs, for others."""
    if len(program.graphs) != 1 or program.micro_batches() != 1:
        earlier = compiled_by(program)
        already = f"was compiled already by {earlier}, and " if earlier else ""
        raise PassError(
            f"{name} needs a program with one step graph; this one {already}has {', '.join(program.graphs)} "
            f"(schedule: {program.schedule}). Put it into one pipeline with the passes that split the step: it runs "
            "before them, and once."
        )
    (step,) = program.graphs.values()
    return step
