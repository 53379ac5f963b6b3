"""What a training cell does to its weights by itself, behind their updates: it bounds them, or copies them to a target
network."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...ir.analysis.training.own_writes import own_writes
from ...ir.core.errors import AnatomyError, RuntimeFailure
from ...ir.core.wording import counted
from .base import without
from .context import Context, NotApplicable, Property, differing
from .deterministic import without_dropout
from .given_weights import GivenWeights
from .promises import REPLACE
from .reference import Values
from .report import EXACT, PASSED, Deviation, Result
from .tolerance import compare

FACTORS = (1.0, 4.0, 16.0, 64.0, 256.0)
"""Weights are multiplied by these: a bound shows only on what lies outside of it."""


class CellWrites(Property):
    """Weights of several sizes are put in the place of what the updates leave, in the original, and in the original
    with its new optimizers where a pass replaces them. Behind that, both have the same weights, and the same in all
    else that follows from them (exact). Then the program runs a cycle from weights that the cell changes, and leaves
    what the original's update leaves (the tolerance is that of any update)."""

    name = "writes of the cell"
    promise = "what the training cell does to its weights behind their updates is done to them"

    def check(self, c: Context) -> Result:
        old = without_dropout(without(c.original, c.promises, c.program.target, REPLACE))
        written = {name for graph in old.graphs.values() for name in own_writes(graph).values()}
        if not written and not c.reference.probe.copies:
            raise NotApplicable("the training cell does nothing to its weights besides their updates")
        c.needs_forward()
        weights = c.reference.probe.weights
        try:
            wanted = GivenWeights(old, weights, c.device)
            found = GivenWeights(c.base, weights, c.device) if c.promises.having(REPLACE) else wanted
        except (AnatomyError, RuntimeFailure) as error:
            raise NotApplicable(f"what the training cell does to its weights is not laid open: {error}") from error
        first, batch = {n: c.reference.initial[n] for n in weights}, c.batches[0]
        near, far = (wanted.step(wanted.initial, batch, _spread(first, factor)) for factor in FACTORS[:2])
        follows = [n for n in differing(near, far, list(near)) if n not in weights]
        for name in follows:
            if name not in found.initial and old.state[name].role != "slot":
                return self.failed(f"'{name}', which the training cell makes of its weights, is gone")
        compared = [*weights, *(n for n in follows if n in found.initial)]
        changed: dict[float, set[str]] = {}
        left, ours = wanted.initial, found.initial
        for factor in FACTORS:
            given = _spread(first, factor)
            left, ours = wanted.step(left, batch, given), found.step(ours, batch, given)
            for name in differing(ours, left, compared):
                return self.failed(f"'{name}' is not what the training cell makes of its weights, times {factor:g}")
            changed[factor] = {n for n in written if differing(left, given, [n])}
        seen = set[str]().union(*changed.values())
        if not seen and not follows:
            raise NotApplicable("it changed none of the weights that were tried, so nothing shows what it does")
        detail = [
            f"it changes {counted(len(seen), 'weight')}, and {counted(len(compared) - len(weights), 'state')} by them"
        ]
        if written - seen:
            detail.append(f"nothing shows what it does to '{min(written - seen)}'")
        if not seen:
            return self.result(PASSED, "; ".join(detail), EXACT)
        deviation, said = self._ran(c, _spread(first, max(changed, key=lambda f: (len(changed[f]), -f))))
        return self.verdict([deviation], "; ".join((*detail, *said)))

    @staticmethod
    def _ran(c: Context, weights: Values) -> tuple[Deviation, list[str]]:
        """How far a cycle of the program from these weights is off; or why there is none."""
        try:
            c.needs_update()
        except NotApplicable as reason:
            return EXACT, [f"no cycle of the program is compared: {reason}"]
        batches = c.micro_batches(0)
        state = {**c.reference.initial, **weights}
        cycle = c.expected(state, batches)
        c.subject.restart()
        c.subject.load(weights)
        ran = c.subject.cycle(batches)
        if not all(micro.finite for micro in cycle.micros) or not ran.last.updated:
            return EXACT, ["no cycle of the program is compared: from such weights it overflows"]
        return compare(ran.state, cycle.expected, c.judged()), []


def _spread(weights: Mapping[str, np.ndarray], factor: float) -> Values:
    """The weights, moved a little (some are 0) and multiplied."""
    rng = np.random.default_rng(0)
    return {n: (factor * (w + 0.01 * rng.standard_normal(w.shape))).astype(w.dtype) for n, w in weights.items()}
