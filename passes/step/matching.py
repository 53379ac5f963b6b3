"""The weights that the globs of an option mean, among those that a program updates."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from ...ir.analysis.effects.effect_list import written_states
from ...ir.core.errors import PassError, nearest
from ...ir.core.graph import Graph
from ...ir.core.program import Program
from ...ir.core.report import PassResult


def updated_weights(
    program: Program, updating: Sequence[Graph], match: Sequence[str], result: PassResult, *, still: str, integer: str
) -> list[str]:
    """The weights of floats that match a glob and that a graph of ``updating`` writes, in the program's order.

    The others that match are misses: ``still`` says why one that nothing updates is left alone, ``integer`` why one of
    integers is. PassError for a glob that matches no weight.
    """
    written = set().union(*map(written_states, updating))
    weights = [name for name, variable in program.state.items() if variable.role == "weight"]
    for glob in match:
        if not any(fnmatchcase(name, glob) for name in weights):
            raise PassError(f"no weight has the name '{glob}'{nearest(glob, weights)}")
    found = []
    for name in weights:
        if not any(fnmatchcase(name, glob) for glob in match):
            continue
        if name not in written:
            result.miss(name, f"nothing updates it: {still}")
        elif not program.state[name].dtype.is_float:
            result.miss(name, f"it is {program.state[name].type}: {integer}")
        else:
            found.append(name)
    return found
