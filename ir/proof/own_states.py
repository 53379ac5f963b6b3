"""The program's own states at the end of a cycle: sums are 0 again, counts and loss scales follow their rules."""

from __future__ import annotations

from collections.abc import Collection

from .case import Case
from .expected import Expected
from .formulas import rules
from .formulas.records import updates_by_condition
from .formulas.rules import Rule
from .sides import Sides
from .verdict import OWN, STATE, UNPROVED


def follows_updates(sides: Sides, expected: Expected, adding: Collection[str]) -> bool:
    """Whether the program brings a state along that moves otherwise where an update is skipped."""
    own = [name for name in sides.own if name not in adding and name != sides.cycles]
    return any(name in expected.rules or sides.program.state[name].role in ("counter", "loss-scale") for name in own)


def compare_own_states(case: Case, adding: Collection[str]) -> None:
    """``adding``: the states that micro-batches add to. Notes the rules that states follow, for the checker."""
    sides, reals = case.sides, case.reals
    for name in sides.own:
        term, before = case.found.states[name], sides.start[name]
        form = reals.form(term)
        known = _rules(case, name)
        of = reals.polynomial(term)
        right = next((rule for rule in known if reals.polynomial(_by_rule(case, rule)) == of), None)
        if name in adding:
            if of:
                case.say(STATE, name, UNPROVED, "it is not 0 again after the update", form)
            else:
                case.say(STATE, name, OWN, "0 at the end of each cycle", term, laws=("zeros",))
        elif right is not None:
            case.proof.rules[name] = right
            where = "counts cycles" if name == sides.cycles else f"by its rule {case.where}"
            case.say(STATE, name, OWN, where, term)
        elif known:
            detail = _unknown(case) or f"it does not follow its rule {case.where}"
            case.say(STATE, name, UNPROVED, detail, form, _by_rule(case, known[0]))
        elif form == before:
            case.say(STATE, name, OWN, "left as it is", term)
        elif name in sides.monitors:
            case.say(STATE, name, OWN, "measures: nothing else takes it", term)
        elif sides.program.state[name].role == "carried":
            case.say(STATE, name, OWN, "set by each micro-batch", term)
        else:
            detail = _unknown(case) or f"no law says what it should hold {case.where}"
            case.say(STATE, name, UNPROVED, detail, form)


def _unknown(case: Case) -> str:
    """The reason where the original skips updates, and nothing tells when."""
    sides = case.sides
    weights = [n for n, v in sides.original.state.items() if v.role == "weight"]
    if case.overflow is not None or not any(updates_by_condition(g, weights) for g in sides.original.graphs.values()):
        return ""
    return "the original updates under a condition of its own, which is no test for finite gradients: law missing"


def _by_rule(case: Case, rule: Rule) -> int:
    return case.sides.by_rule(rule, case.expected.updated, overflow=bool(case.overflow))


def _rules(case: Case, name: str) -> list[Rule]:
    """What a counter or a loss scale may follow."""
    sides, state = case.sides, case.sides.program.state
    if name in case.expected.rules:
        return [case.expected.rules[name]]
    counter = state[name].role == "counter" and case.overflow is not None
    if counter or name == sides.cycles:
        return [rules.counts(name, state[name].dtype, skipped=name != sides.cycles)]
    if state[name].role != "loss-scale" or case.overflow is None:
        return []
    found = []
    scales = [n for n, v in state.items() if v.role == "loss-scale"]
    for scale in scales:
        said = state[scale].info
        if sides.alone and sides.start[scale] in sides.scales:  # a file of one graph does not hold the rule
            said = {k: v for k, v in sides.promises.options.get("loss-scale", {}).items() if v is not None}
        if said.keys() >= rules.OPTIONS and said.get("mode", "dynamic") == "dynamic":
            others = [n for n in scales if n != scale and name in (scale, n)]
            found += [rules.dynamic_scale(scale, clean, said)[name == clean] for clean in others]
    return found
