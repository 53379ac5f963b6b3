"""The weights that the globs of an option mean, among those that a program updates or trains."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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


def trained_matching(program: Program, match: Sequence[str], trained: Collection[str]) -> set[str]:
    """The weights among ``trained`` that match a glob; PassError for a glob that matches none of them."""
    found: set[str] = set()
    for glob in match:
        matching = {name for name in trained if fnmatchcase(name, glob)}
        if not matching:
            weights = (name for name, variable in program.state.items() if variable.role == "weight")
            still = next((name for name in weights if fnmatchcase(name, glob)), None)
            if still is not None:
                raise PassError(f"nothing trains '{still}': leave '{glob}' out")
            raise PassError(f"no trained weight has the name '{glob}'{nearest(glob, list(trained))}")
        found |= matching
    return found
