"""The program's own states at the end of a cycle: sums are 0 again, counts and loss scales follow their rules."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

from .case import Case
from .formulas import loss_scale
from .verdict import OWN, STATE, UNPROVED


def compare_own_states(case: Case, adding: Collection[str]) -> None:
    """``adding``: the states that micro-batches add to."""
    sides, reals = case.sides, case.reals
    for name in sides.own:
        term, before = case.found.states[name], sides.start[name]
        form = reals.form(term)
        rules = _rules(case, name)
        if name in adding:
            if reals.polynomial(term):
                case.say(STATE, name, UNPROVED, "it is not 0 again after the update", form)
            else:
                case.say(STATE, name, OWN, "0 at the end of each cycle", term, laws=("zeros",))
        elif name == sides.cycles:
            again = reals.polynomial(term) == {((before, 1),): 1, (): 1}
            case.say(STATE, name, OWN if again else UNPROVED, "counts cycles" if again else "it does not count cycles",
                     form)  # fmt: skip
        elif any(reals.form(t) == form for t in rules):
            case.say(STATE, name, OWN, f"by its rule {case.where}", term)
        elif rules:
            case.say(STATE, name, UNPROVED, f"it does not follow its rule {case.where}", form, rules[0])
        elif form == before:
            case.say(STATE, name, OWN, "left as it is", term)
        elif sides.program.state[name].role == "carried":
            case.say(STATE, name, OWN, "set by each micro-batch", term)
        else:
            case.say(STATE, name, UNPROVED, f"no law says what it should hold {case.where}", form)


def _rules(case: Case, name: str) -> list[int]:
    """What a counter or a loss scale should hold after a cycle."""
    sides, overflow = case.sides, case.overflow
    terms, state, start = sides.terms, sides.program.state, sides.start
    if state[name].role == "counter" and overflow is not None:
        one = terms.make(("sum", (), ((Fraction(1), ()), (Fraction(1), (1,)))), (start[name],), ())
        return [one] if overflow else [terms.make(("sum", (), ()), (), ())]
    if state[name].role != "loss-scale" or overflow is None:
        return []
    found = []
    scales = [n for n, v in state.items() if v.role == "loss-scale"]
    for scale in scales:
        rule = state[scale].info
        if sides.alone and start[scale] in sides.scales:  # a file of one graph does not hold the rule
            rule = {k: v for k, v in sides.promises.options.get("loss-scale", {}).items() if v is not None}
        if "window" in rule and rule.get("mode", "dynamic") == "dynamic":
            for clean in scales:
                if name in (scale, clean) and clean != scale:
                    new = loss_scale.dynamic_scale(terms, start[scale], start[clean], rule, overflow)
                    found.append(new[name == clean])
    return found
