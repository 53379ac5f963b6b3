"""Optimizers of MindSpore in the place of the file's, which no formula states: each by itself judges what the pass made
of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ...ir.analysis.training.gradient_path import gradient_paths
from ...ir.analysis.training.own_writes import own_writes
from ...ir.core.errors import PassError
from ...ir.core.program import Program
from ...ir.core.spec import parse_spec
from ...ir.core.wording import counted
from ...passes.framework.base import Pass
from ...passes.replace_optimizer.own import settle_own
from ...passes.step.rates import find_rates
from ...runtime.differentiation.update import run_update
from .changes import totals
from .context import Context, NotApplicable, Property, differing
from .promises import REPLACE
from .reference import Batch, Reference, Values
from .report import EXACT, PASSED, Result
from .stated import state

UPDATES = 3
"""So many updates, one after the other, are compared: the first ones of an optimizer's slots."""
Alone = Callable[[Sequence[Any], Sequence[Any]], list[Any]]
"""From arrays of weights and of their gradients to the weights behind one more update."""


class ReplacedOptimizers(Property):
    """Some updates of the original with its new optimizers, and of the original as it is, from the same weights, all
    exact. Each weight has the same gradient in both. Weights that no use of the pass names, and their slots, are
    updated as in the original. The others are as the optimizer alone, a Cell, leaves them. What else the original's
    updates move (an average of its own, a target network) moves still."""

    name = "replaced optimizers"
    promise = "another optimizer gets the old one's gradients and updates as it does alone, other weights as before"

    def check(self, c: Context) -> Result:
        if REPLACE not in c.stated.made:
            raise NotApplicable(
                "a formula states it" if c.promises.having(REPLACE) else "no pass replaces an optimizer"
            )
        c.needs_forward()
        new, old = c.reference, c.replaced
        judges, named, unknown = _uses(c, opened=old is not None and bool(old.probe.cuts))
        if old is None:
            unknown.insert(0, "the old optimizer does not run here, so what it is given is not compared")
        if not judges:
            raise NotApplicable("; ".join(unknown))
        beside = None if old is None else _Original(old, new, named)
        now = new.initial
        for number, batch in enumerate(c.batches[:UPDATES], 1):
            gradients = new.micro(now, batch).gradients
            found = totals(new.probe, gradients)
            before, now = now, new.update(now, batch, gradients)
            handed = found if beside is None else beside.handed(batch, found)
            if beside is not None and (what := beside.differs(batch, found, now)):
                return self.failed(what)
            for weights, alone in judges:
                left = alone([before[w] for w in weights], [handed[w] for w in weights])
                if off := differing(now, dict(zip(weights, left, strict=True)), weights):
                    return self.failed(f"update {number} of '{off[0]}' is not what its optimizer makes of it by itself")
        for name in sorted(() if beside is None else beside.moved):
            if not differing(now, new.initial, [name]):
                return self.failed(f"'{name}' stands still, and the original's updates move it")
        detail = f"{counted(len(named), 'weight')}, {counted(UPDATES, 'update')}"
        if beside is not None and beside.others:
            detail += f"; {counted(len(beside.others), 'other weight')} as before"
        return self.result(PASSED, "; ".join((detail, *unknown)), EXACT)


class _Original:
    """The original with its own optimizer, beside ``new``. ``named``: the weights of a use."""

    def __init__(self, reference: Reference, new: Reference, named: set[str]):
        self.reference, roles = reference, reference.roles
        serves = {n: reference.serves(n) for n in reference.initial if n in new.initial}
        self.kept = [n for n, weight in serves.items() if weight and weight not in named]
        self.others = {serves[n] for n in self.kept}
        self.unnamed = [n for n in serves if n not in named and roles[n] != "hyperparameter"]
        # Taken from the new optimizers, so that both have the same weights in front of every update.
        self.follows = {*named, *(n for n in serves if n not in named and roles[n] == "statistic")}
        self.state = reference.initial
        self.moved = set[str]()

    def handed(self, batch: Batch, found: Values) -> Values:
        """The gradient of each weight as this optimizer is handed it: the new one is to get the same."""
        if not self.reference.probe.cuts:
            return found
        (cut,) = self.reference.probe.cuts
        given = self.reference.micro(self.state, batch).gradients
        return {**found, **totals(cut, self.reference.handed(cut.stage, self.state, batch, given))}

    def differs(self, batch: Batch, found: Values, state: Values) -> str | None:
        """Updates too, and says what of the new optimizers' gradients, or of the state behind them, is not as here."""
        given = self.reference.micro(self.state, batch).gradients
        taken = totals(self.reference.probe, given)
        for weight in differing(found, taken, list(taken)):
            return f"the gradient of '{weight}' is not the one that the old optimizer was given"
        left = self.reference.update(self.state, batch, given)
        for name in differing(state, left, self.kept):
            return f"'{name}' serves a weight that no use names, and is updated in another way"
        self.moved |= set(differing(left, self.state, self.unnamed))
        self.state = {n: state[n] if n in self.follows else v for n, v in left.items()}
        return None


def _uses(c: Context, *, opened: bool) -> tuple[list[tuple[list[str], Alone]], set[str], list[str]]:
    """The optimizers by themselves, with the weights of each; the weights that uses name; and what is not compared.
    ``opened``: whether the gradients are known that the old optimizer is handed."""
    old = state(c.original, c.program, c.promises, leave_out=REPLACE).program
    moving = {weight for slot in c.reference.probe.gradients for weight in slot.weights}
    groups: dict[Pass, list[str]] = {}
    for weight in c.reference.probe.weights:
        by = [u for u in c.promises.having(REPLACE) if any(fnmatchcase(weight, g) for g in u.options()["match"])]
        if by:  # a later use comes on top
            groups.setdefault(by[-1], []).append(weight)
    named = {weight for weights in groups.values() for weight in weights}
    judges, unknown = [], dict[str, None]()
    for use, weights in groups.items():
        judged = [weight for weight in weights if weight in moving]
        alone = _alone(use, judged, old, c.program.target, opened=opened) if judged else "none of its weights moves"
        if isinstance(alone, str):
            unknown[f"what the optimizer makes of the gradients is not compared: {alone}"] = None
        else:
            judges.append((judged, alone))
    for weight in sorted(named - moving):
        unknown[f"'{weight}' has no gradient, so what its optimizer makes of it is not compared"] = None
    return judges, named, list(unknown)


def _alone(use: Pass, weights: Sequence[str], old: Program, target: str, *, opened: bool) -> Alone | str:
    """The optimizer of a use by itself; or why it cannot be judged so."""
    spec, ((_, graph),) = parse_spec(use.options()["to"], "optimizer"), old.graphs.items()
    if not {*own_writes(graph).values()}.isdisjoint(weights):
        return "the training cell writes its weights by itself besides"
    stages = {point.stage for path in gradient_paths(graph) for point in path.points if point.stage}
    if not opened and stages - {"weight-decay", "centralize"}:
        return f"the training cell treats gradients by itself ({', '.join(sorted(stages))})"
    given = {"lr", "learning_rate"} & {key.replace("-", "_") for key in spec.options}
    held = {rate.numbers for rate in _rates(old) if rate.weights.keys() & {*weights}}
    numbers = {number for several in held for number in several or ()}
    constant = len(numbers) == 1 and None not in held
    if not constant and (use.options()["keep_schedule"] or not given):
        return "the learning rate of the file changes, or is not the only one"
    rate = numbers.pop() if constant and not given else None
    if settle_own(spec, target, rate) is not None:
        return "no formula states it here"
    return run_update(spec, [old.state[weight] for weight in weights], rate)


def _rates(program: Program) -> Sequence[Any]:
    try:
        return find_rates(program, list(program.graphs.values()))
    except PassError:
        return []
