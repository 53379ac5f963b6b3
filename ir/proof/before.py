"""What has to hold before any graph runs: effects do not race, and both sides begin with the same state."""

from __future__ import annotations

from ..analysis.effects.races import races
from ..core.data import Data
from ..core.program import Program
from ..symbolic.execution import Unproved
from . import formulas
from .formulas import average
from .verdict import ORDER, STATE, UNPROVED, Proof, Verdict


def compare_order(original: Program, program: Program, proof: Proof) -> None:
    """Races of the program; those on values that the original already leaves to copies of Loads do not count."""
    graph = next(iter(original.graphs.values()))
    loose = {r.state for r in races(graph) if r.view}
    for mine in program.graphs.values():
        for race in races(mine):
            if not (race.view and race.state in loose):
                detail = f"two effects race: {race}"
                proof.verdicts.append(Verdict(ORDER, race.state, UNPROVED, detail=detail, graph=mine.name))


def compare_start(original: Program, program: Program, proof: Proof) -> None:
    lacking = formulas.gone(original, program)
    for name, variable in original.state.items():
        mine = program.state.get(name)
        if name in lacking:
            continue
        if mine is None:
            proof.verdicts.append(Verdict(STATE, name, UNPROVED, detail="the program has no such state"))
            raise Unproved(f"the program has no state '{name}': law missing for networks that were changed")
        if (mine.dtype, mine.shape) != (variable.dtype, variable.shape):
            raise Unproved(f"state '{name}' is {mine.type}, in the original {variable.type}")
        if not _same_bytes(mine.data, variable.data):
            detail = "the program begins with another value of it"
            proof.verdicts.append(Verdict(STATE, name, UNPROVED, detail=detail))
    for name, detail in average.objections(original, program):
        proof.verdicts.append(Verdict(STATE, name, UNPROVED, detail=detail))


def _same_bytes(a: Data, b: Data) -> bool:
    """In pieces, so that large states take no memory."""
    if a is b:
        return True
    return a.nbytes == b.nbytes and all(x == y for x, y in zip(a.pieces(), b.pieces(), strict=True))
