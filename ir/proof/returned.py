"""What a graph of the program returns: the original's results, and those that passes add, by their rules."""

from __future__ import annotations

from ..analysis.training.results import names_of_results
from ..core.graph import Graph
from ..core.names import LOSS_SCALE, OVERFLOW, SKIPPED_CYCLES
from ..core.types import DType
from ..symbolic.execution import Outcome
from .case import Case
from .verdict import OWN, RESULT, UNPROVED


def compare_results(case: Case, wanted: Outcome, *, complete: bool = False, updates: bool = True) -> None:
    """``complete``: the graph must return all that the original does. ``updates``: whether it ends a cycle."""
    sides, reals = case.sides, case.reals
    named, have = _named(sides.graph, wanted.result), _named(case.graph, case.found.result)
    for name in named:
        if complete and name not in have:
            case.say(RESULT, name, UNPROVED, "the program returns it no more")
    for name, term in have.items():
        if name in named:
            if sides.terms.heads[named[name]][0] == "left out":
                continue
            if case.equal(named[name], term):
                case.agree(RESULT, name, named[name], term)
            else:
                case.differ(RESULT, name, named[name], term, case.where)
            continue
        form, names = reals.form(term), [name]
        if sides.alone:  # a file of one graph does not name what passes return
            names.extend((*case.expected.changed.results, LOSS_SCALE, OVERFLOW, SKIPPED_CYCLES))
        nothing = sides.alone and not updates and reals.is_nothing(term)  # no update, so nothing to say of it
        if nothing or any(form == reals.form(t) for n in names for t in _rules(case, n)):
            case.say(RESULT, name, OWN, case.where or "as its states say", form)
        else:
            case.say(RESULT, name, UNPROVED, f"no law says what it should be {case.where}", form)


def _rules(case: Case, name: str) -> list[int]:
    """What the outputs that passes add should be: the loss scale of the step, whether a gradient overflowed, and how
    many updates in a row were skipped."""
    sides, given = case.sides, case.expected.changed.results
    if name in given:
        return [given[name]]
    if name == LOSS_SCALE:
        return sorted(sides.scales)
    if name == OVERFLOW:
        unknown = case.overflow is None and not case.lost
        return [] if unknown else [sides.terms.constant(bool(case.overflow or case.lost))]
    if name == SKIPPED_CYCLES:
        counters = [n for n in sides.own if (v := sides.program.state[n]).role == "counter" and v.dtype is DType.INT32]
        return [case.found.states[n] for n in counters]
    return []


def _named(graph: Graph, result: list[int]) -> dict[str, int]:
    return dict(zip(names_of_results(graph, len(result)), result, strict=False))
