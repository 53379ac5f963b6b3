"""Replaced optimizers: what they are given, what they make of it, and what they leave alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ...ir.analysis.training.own_writes import own_writes
from ...ir.core.errors import RuntimeFailure
from ...ir.core.program import Program
from ...ir.core.spec import Spec, parse_spec
from ...ir.core.wording import counted
from ...passes.framework.base import Pass
from ...passes.replace_optimizer.own import settle_own
from ...runtime.differentiation.update import run_update
from .base import without
from .changes import exporter_stages, totals
from .context import Context, NotApplicable, Property, differing
from .deterministic import without_dropout
from .optimizers import BOUND, RULES, excess, judged
from .promises import REPLACE
from .reference import Reference, Values
from .report import EXACT, PASSED, Deviation, Result
from .schedule import RATE

UPDATES = 3
"""So many updates, one after the other, are compared: the first ones of an optimizer's slots."""


class ReplacedOptimizers(Property):
    """Some updates of the original with its new optimizers, and of the original as it is, from the same weights. Each
    weight has the same gradient in both (exact). Weights that no use of the pass names, and their slots, are updated
    as in the original (exact). The others are updated as by the optimizer alone, which is given these gradients:
    MindSpore's own one as a Cell (exact), or the formula of its paper (1e-5, relative to the weight). What else the
    cell moves (an average of its own, a target network) moves still."""

    name = "replaced optimizers"
    promise = "another optimizer gets the old one's gradients and updates as it does alone, other weights as before"

    def check(self, c: Context) -> Result:
        uses = c.promises.having(REPLACE)
        if not uses:
            raise NotApplicable("no pass replaces an optimizer")
        c.needs_forward()
        before_passes = without_dropout(without(c.original, c.promises, c.program.target, REPLACE))
        old, new = _running(before_passes, c), c.reference
        reasons = dict[str, None]()
        if old is None:
            reasons["the old optimizer does not run here, so what it is given is not compared"] = None
        groups = _groups(uses, new.probe.weights)
        alone = [_alone(use, weights, before_passes, c.program.target) for use, weights in groups.items()]
        named = {weight for weights in groups.values() for weight in weights}
        serves = {} if old is None else {n: old.serves(n) for n in old.initial}
        kept = [n for n, w in serves.items() if w and w not in named and n in new.initial]
        roles = {n: before_passes.state[n].role for n in serves if n in new.initial and n not in named}
        beside = [n for n, role in roles.items() if role != "hyperparameter"]
        follows = {*named, *(n for n, role in roles.items() if role == "statistic")}  # a target network
        moved = set[str]()
        state, other, worst = new.initial, {} if old is None else old.initial, EXACT
        for number, batch in enumerate(c.batches[:UPDATES], 1):
            gradients = new.micro(state, batch).gradients
            found = totals(new.probe, gradients)
            before, state = state, new.update(state, batch, gradients)
            if old is not None:
                given = old.micro(other, batch).gradients
                wanted = totals(old.probe, given)
                for weight in differing(found, wanted, list(wanted)):
                    return self.failed(f"the gradient of '{weight}' is not the one that the old optimizer was given")
                left = old.update(other, batch, given)
                for name in differing(state, left, kept):
                    return self.failed(f"'{name}' serves a weight that no use names, and is updated in another way")
                moved |= set(differing(left, other, beside))
                other = {n: state[n] if n in follows else v for n, v in left.items()}
            for update in alone:
                if not isinstance(update, str):
                    name, off = update(number, before, found, state)
                    deviation = Deviation(name, off * BOUND, off * BOUND, 0.0, BOUND, 0.0, off)
                    if off > 1:
                        what = f"update {number} of '{name}' is not what its optimizer makes of it by itself"
                        return self.failed(what, deviation)
                    worst = max(worst, deviation, key=lambda d: d.excess)
        detail = f"{counted(len(named), 'weight')}, {counted(UPDATES, 'update')}"
        if kept:
            detail += f"; {counted(len({serves[n] for n in kept}), 'other weight')} as before"
        for name in sorted(moved):
            if not differing(state, new.initial, [name]):
                return self.failed(f"'{name}' stands still, and the original's updates move it")
        for reason in (update for update in alone if isinstance(update, str)):
            reasons[f"what the optimizer makes of the gradients is not compared: {reason}"] = None
        return self.result(PASSED, "; ".join((detail, *reasons)), worst)


def _running(original: Program, c: Context) -> Reference | None:
    """None where the original's own optimizer has no kernels here; it may be replaced for that."""
    try:
        reference = Reference(original, c.device)
        reference.micro(reference.initial, c.batches[0])
    except RuntimeFailure:
        return None
    return reference


Update = Callable[[int, Values, Values, Values], tuple[str, float]]
"""The weight that is furthest from what its optimizer makes of it by itself, and how far, in parts of what is allowed:
of the number of the update, the state before it, the gradients, and the state behind it."""


def _groups(uses: Sequence[Pass], weights: Sequence[str]) -> dict[Pass, list[str]]:
    """The weights that each use updates in the end: a later one comes on top."""
    groups: dict[Pass, list[str]] = {}
    for weight in weights:
        by = [use for use in uses if any(fnmatchcase(weight, glob) for glob in use.options()["match"])]
        if by:
            groups.setdefault(by[-1], []).append(weight)
    return groups


def _alone(use: Pass, weights: Sequence[str], old: Program, target: str) -> Update | str:
    """The optimizer of a use by itself; or why it cannot be judged so."""
    spec = parse_spec(use.options()["to"], "optimizer")
    if stages := exporter_stages(old) - {"weight-decay", "centralize"}:
        return f"the training cell treats gradients by itself ({', '.join(sorted(stages))})"
    if twice := sorted({name for graph in old.graphs.values() for name in own_writes(graph).values()}):
        return f"the training cell writes '{twice[0]}' by itself besides"
    given = {"lr", RATE} & {key.replace("-", "_") for key in spec.options}
    held = [v for n, v in old.state.items() if n.startswith(RATE)]
    constant = len(held) == 1 and held[0].type.size == 1
    if not constant and (use.options()["keep_schedule"] or not given):
        return "the learning rate of the file changes, or is not the only one"
    rate = float(held[0].initial.reshape(-1)[0]) if constant and not given else None
    variables = [old.state[weight] for weight in weights]
    own = settle_own(spec, target, rate)
    return _native(run_update(spec, variables, rate), weights) if own is None else _formula(own, weights)


def _native(run: Callable[[Sequence[Any]], list[Any]], weights: Sequence[str]) -> Update:
    def update(number: int, before: Values, gradients: Values, after: Values) -> tuple[str, float]:
        wanted = run([gradients[weight] for weight in weights])
        off = [w for w, array in zip(weights, wanted, strict=True) if array.tobytes() != after[w].tobytes()]
        return (off[0], np.inf) if off else ("", 0.0)

    return update


def _formula(spec: Spec, weights: Sequence[str]) -> Update:
    rule, kept = RULES[spec.name], dict[str, np.ndarray]()

    def update(number: int, before: Values, gradients: Values, after: Values) -> tuple[str, float]:
        found = {}
        for weight in weights:
            w, g = (values[weight].astype(np.float64) for values in (before, gradients))
            found[weight] = excess(rule(spec.options, kept, weight, w, g, number), after[weight], judged(rule, w, g))
        return max(found.items(), key=lambda item: item[1])

    return update
