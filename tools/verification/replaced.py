"""Replaced optimizers: what they are given, what they make of it, and what they leave alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ...ir.analysis.training.anatomy import anatomy
from ...ir.analysis.training.own_writes import own_writes
from ...ir.analysis.training.rates import Updates
from ...ir.core.errors import AnatomyError, PassError
from ...ir.core.program import Program
from ...ir.core.spec import Spec, parse_spec
from ...ir.core.wording import counted
from ...passes.framework.base import Pass
from ...passes.replace_optimizer.own import settle_own
from ...passes.step.rates import Rate, find_rates
from ...runtime.differentiation.update import run_update
from .base import without
from .changes import exporter_stages, totals
from .context import Context, NotApplicable, Property, differing
from .deterministic import without_dropout
from .given_weights import GivenWeights
from .optimizers import BOUND, RULES, excess, judged
from .promises import REPLACE
from .reference import Batch, Reference, Values
from .report import EXACT, PASSED, Deviation, Result
from .schedule import RATE

UPDATES = 3
"""So many updates, one after the other, are compared: the first ones of an optimizer's slots."""


class ReplacedOptimizers(Property):
    """Some updates of the original with its new optimizers, and of the original as it is, from the same weights. Each
    weight has the same gradient in both (exact). Weights that no use of the pass names, and their slots, are updated
    as in the original (exact). The others are updated as by the optimizer alone, which is given these gradients:
    MindSpore's own one as a Cell (exact), or the formula of its paper (1e-5, relative to the weight). Where the cell
    writes weights by itself besides, the original does that to what the optimizer left. What else the cell moves (an
    average of its own, a target network) moves still."""

    name = "replaced optimizers"
    promise = "another optimizer gets the old one's gradients and updates as it does alone, other weights as before"

    def check(self, c: Context) -> Result:
        uses = c.promises.having(REPLACE)
        if not uses:
            raise NotApplicable("no pass replaces an optimizer")
        c.needs_forward()
        before_passes = without_dropout(without(c.original, c.promises, c.program.target, REPLACE))
        new, groups = c.reference, _groups(uses, c.reference.probe.weights)
        named = {weight for weights in groups.values() for weight in weights}
        old = _Original.beside(new, named, c)
        judges, reasons = _judges(groups, before_passes, c, opened=old is not None and bool(old.reference.probe.cuts))
        if old is None:
            reasons = ["the old optimizer does not run here, so what it is given is not compared", *reasons]
        if not judges.alone:
            raise NotApplicable("; ".join(reasons))
        state, worst = new.initial, EXACT
        for number, batch in enumerate(c.batches[:UPDATES], 1):
            gradients = new.micro(state, batch).gradients
            found = totals(new.probe, gradients)
            before, state = state, new.update(state, batch, gradients)
            handed = found if old is None else old.handed(batch, found)
            wanted = judges.wanted(number, batch, before, handed, None if old is None else old.state)
            if old is not None and (what := old.differs(batch, found, state)):
                return self.failed(what)
            for deviation in judges.deviations(wanted, state, before, handed):
                if deviation.excess > 1:
                    what = f"update {number} of '{deviation.where}' is not what its optimizer makes of it by itself"
                    return self.failed(what, deviation)
                worst = max(worst, deviation, key=lambda d: d.excess)
        detail = f"{counted(len(named), 'weight')}, {counted(UPDATES, 'update')}"
        if old is not None and old.kept:
            detail += f"; {counted(len(old.others), 'other weight')} as before"
        for name in sorted(() if old is None else old.moved):
            if not differing(state, new.initial, [name]):
                return self.failed(f"'{name}' stands still, and the original's updates move it")
        return self.result(PASSED, "; ".join((detail, *reasons)), worst)


@dataclass
class _Original:
    """The original with its own optimizer, which takes the batches of ``new``. ``named``: the weights of a use."""

    reference: Reference
    new: Reference
    named: Collection[str]

    def __post_init__(self) -> None:
        reference, roles = self.reference, self.reference.roles
        serves = {n: reference.serves(n) for n in reference.initial if n in self.new.initial}
        self.kept = [n for n, weight in serves.items() if weight and weight not in self.named]
        """Weights that no use names, and their slots."""
        self.others = {serves[n] for n in self.kept}
        unnamed = [n for n in serves if n not in self.named]
        self.unnamed = [n for n in unnamed if roles[n] != "hyperparameter"]
        statistics = (n for n in unnamed if roles[n] == "statistic")  # a target network
        self.follows = {*self.named, *statistics}
        """What is taken from the new optimizers, so that both have the same weights in front of every update."""
        self.state = reference.initial
        self.moved = set[str]()
        """What this optimizer's updates moved, beside the weights of the uses."""

    @classmethod
    def beside(cls, new: Reference, named: Collection[str], c: Context) -> _Original | None:
        """None where the original's own optimizer has no kernels here; it may be replaced for that."""
        return None if c.replaced is None else cls(c.replaced, new, named)

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


@dataclass(frozen=True)
class _Judges:
    """The new optimizers by themselves. ``behind``: what the training cell does to weights behind its updates."""

    alone: Sequence[_Alone]
    behind: GivenWeights | None

    def wanted(self, number: int, batch: Batch, before: Values, found: Values, earlier: Values | None) -> Values:
        """The weights behind an update. ``earlier``: the state of the original in front of it, where it runs."""
        wanted = {n: w for judge in self.alone for n, w in judge.update(number, before, found).items()}
        if self.behind is None or not self.alone:
            return wanted
        if earlier is None:
            earlier = {n: before.get(n, v) for n, v in self.behind.initial.items()}
        return self.behind.step(earlier, batch, {n: w.astype(before[n].dtype) for n, w in wanted.items()})

    def deviations(self, wanted: Values, state: Values, before: Values, found: Values) -> Iterator[Deviation]:
        """That of the worst weight of each optimizer."""
        for judge in self.alone:
            offs = {n: judge.off(wanted[n], state[n], before[n], found[n]) for n in judge.weights}
            name = max(offs, key=offs.__getitem__)
            yield Deviation(name, offs[name] * BOUND, offs[name] * BOUND, 0.0, BOUND, 0.0, offs[name])


def _judges(
    groups: Mapping[Pass, list[str]], original: Program, c: Context, *, opened: bool
) -> tuple[_Judges, list[str]]:
    """What judges the weights of each use, and what is not judged, with the reason. ``opened``: whether the gradients
    are known that the old optimizer is handed."""
    moving = {weight for slot in c.reference.probe.gradients for weight in slot.weights}
    judgeable = {use: [w for w in weights if w in moving] for use, weights in groups.items()}
    target = c.program.target
    alone = [_alone(use, weights, original, target, opened=opened) for use, weights in judgeable.items() if weights]
    judges = [a for a in alone if not isinstance(a, str)]
    behind, unknown = _behind(judges, original, c)
    reasons = [
        f"what the optimizer makes of the gradients is not compared: {reason}"
        for reason in (*(a for a in alone if isinstance(a, str)), *unknown)
    ]
    reasons += [
        f"'{weight}' has no gradient, so what its optimizer makes of it is not compared"
        for weight in sorted({w for weights in groups.values() for w in weights} - moving)
    ]
    return _Judges([] if unknown else judges, behind), list(dict.fromkeys(reasons))


@dataclass(frozen=True)
class _Alone:
    """An optimizer by itself. ``update`` gives its weights behind an update, of the number of that, from 1, the weights
    before it and their gradients. ``off``: how far a weight is from what it should be, in parts of what is allowed, of
    both and of the weight before the update and its gradient."""

    weights: Sequence[str]
    update: Callable[[int, Values, Values], Values]
    off: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], float]


def _groups(uses: Sequence[Pass], weights: Sequence[str]) -> dict[Pass, list[str]]:
    """The weights that each use updates in the end: a later one comes on top."""
    groups: dict[Pass, list[str]] = {}
    for weight in weights:
        by = [use for use in uses if any(fnmatchcase(weight, glob) for glob in use.options()["match"])]
        if by:
            groups.setdefault(by[-1], []).append(weight)
    return groups


def _alone(use: Pass, weights: Sequence[str], old: Program, target: str, *, opened: bool) -> _Alone | str:
    """The optimizer of a use by itself; or why it cannot be judged so."""
    spec = parse_spec(use.options()["to"], "optimizer")
    if stages := set() if opened else exporter_stages(old) - {"weight-decay", "centralize"}:
        return f"the training cell treats gradients by itself ({', '.join(sorted(stages))})"
    given = {"lr", RATE} & {key.replace("-", "_") for key in spec.options}
    held = {r.numbers for r in _rates(old) if r.weights.keys() & {*weights}}
    numbers = {number for several in held for number in several or ()}
    constant = len(numbers) == 1 and None not in held
    if not constant and (use.options()["keep_schedule"] or not given):
        return "the learning rate of the file changes, or is not the only one"
    rate = numbers.pop() if constant and not given else None
    variables = [old.state[weight] for weight in weights]
    own = settle_own(spec, target, rate)
    return _native(run_update(spec, variables, rate), weights) if own is None else _formula(own, weights, old)


def _rates(program: Program) -> list[Rate]:
    try:
        return find_rates(program, list(program.graphs.values()))
    except PassError:
        return []


def _behind(judges: Sequence[_Alone], old: Program, c: Context) -> tuple[GivenWeights | None, list[str]]:
    """What the training cell does by itself to the weights that are judged, where it does; or why that is not known."""
    weights = [weight for judge in judges for weight in judge.weights]
    written = {name for graph in old.graphs.values() for name in own_writes(graph).values()}
    if written.isdisjoint(weights):
        return None, []
    try:
        return GivenWeights(old, weights, c.device), []
    except AnatomyError as error:
        return None, [str(error)]


def _native(run: Callable[[Sequence[Any], Sequence[Any]], list[Any]], weights: Sequence[str]) -> _Alone:
    def update(number: int, before: Values, gradients: Values) -> Values:
        left = run([before[weight] for weight in weights], [gradients[weight] for weight in weights])
        return dict(zip(weights, left, strict=True))

    return _Alone(weights, update, lambda wanted, found, *_: 0.0 if wanted.tobytes() == found.tobytes() else np.inf)


def _formula(spec: Spec, weights: Sequence[str], old: Program) -> _Alone:
    """What the original decays goes on decaying; all weights do where it decays none."""
    rule, kept = RULES[spec.name], dict[str, np.ndarray]()
    (graph,) = old.graphs.values()
    updates = {info.name: info.updates for info in anatomy(graph).weights}
    decaying = {n for n in weights if n in updates and Updates(old, graph).decays(n, updates[n])} or {*weights}
    options = {n: spec.options if n in decaying else {**spec.options, "weight_decay": 0.0} for n in weights}

    def update(number: int, before: Values, gradients: Values) -> Values:
        wide = {n: (before[n].astype(np.float64), gradients[n].astype(np.float64)) for n in weights}
        return {n: rule(options[n], kept, n, w, g, number) for n, (w, g) in wide.items()}

    def off(wanted: np.ndarray, found: np.ndarray, before: np.ndarray, gradient: np.ndarray) -> float:
        return excess(wanted, found, judged(rule, before, gradient))

    return _Alone(weights, update, off)
