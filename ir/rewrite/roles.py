"""The roles of a program's state, and the names of its results, as its training graph tells them."""

from __future__ import annotations

from ..analysis.training.anatomy import anatomy
from ..analysis.training.results import default_names, name_outputs
from ..core.errors import AnatomyError
from ..core.program import Program


def assign_roles(program: Program) -> Program:
    """Sets ``role`` and ``trainable`` of every state variable, where the program's only graph is a training graph, and
    names its results, if they only have the names that their types suggest."""
    graphs = list(program.graphs.values())
    if len(graphs) == 1 and all(v.role == "unknown" for v in program.state.values()):
        try:
            found = anatomy(graphs[0])
        except AnatomyError:
            return program
        trained = {w.name for w in found.weights}
        served = {slot: w.name for w in found.weights for slot in w.slots}
        for name, variable in program.state.items():
            variable.role = found.roles.get(name, "unknown")
            variable.trainable = name in trained if variable.role == "weight" else None
            variable.weight = served.get(name, "")
        if graphs[0].outputs == default_names(graphs[0].result.type):
            name_outputs(program, graphs[0], found)
    return program
