"""The gradients of a network that a pass has made are the derivative of its loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.core.errors import Error
from ...ir.core.graph import tensor_type
from ...ir.core.wording import counted
from ...ir.rewrite.evaluation import adapters_of
from .base import runnable
from .changes import totals
from .context import Context, NotApplicable, Property, worst
from .deterministic import without_dropout
from .promises import FROZEN, LORA, REPLACE, print_names
from .reference import Batch, Reference
from .report import EQUAL, FAILED, PASSED, VACUOUS, Deviation, Result
from .tolerance import deviation, equal

STEPS = (2.0**-6, 2.0**-8, 2.0**-10)
TOLERANCE = 0.1
"""A central difference in float32 of a loss near one, at the best of three step lengths: rounding, curvature and the
kinks of ReLUs leave up to three hundredths of it on the test networks. A gradient that is missing, of the wrong weight
or of the wrong sign is off by its whole size."""
WEIGHTS = 16
"""At most so many weights are moved, evenly spread over the network."""


class Derivative(Property):
    """Where a pass makes another network (less BatchNorm, a normalised head), the original cannot judge its gradients.
    So the loss itself is asked: weights are moved to and fro along random directions, one weight at a time, and the
    difference of the losses compared with what the gradient says. For losses of one number and float32. Adapters are
    judged by the original's gradients, which need be no derivative. Nor need those be of a network that only lost the
    training of some weights: the others have the original's."""

    name = "derivative"
    promise = (
        "the gradients of the changed network are the derivative of its loss, beside frozen weights the original's"
    )

    def check(self, c: Context) -> Result:
        if not c.promises.network:
            raise NotApplicable("no pass makes another network")
        if c.reference.probe.turns > 1:
            raise NotApplicable("the training cell updates between its losses, so moving a weight moves later ones too")
        if {p.name for p in c.promises.network} in ({FROZEN}, {FROZEN, REPLACE}):
            c.needs_forward()
            c.takes_long()
            if (same := self._same_gradients(c)) is not None:
                return same
        if c.reference.probe.unit > 2.0**-20:
            raise NotApplicable("differences of losses in half precision say nothing")
        c.needs_forward()
        c.takes_long()
        batch = c.micro_batches(0)[0]
        slopes = measure(c.reference, batch, c.seed)
        if slopes is None:
            raise NotApplicable("the loss is not one number")
        adapters = adapters_of(c.base).values() if c.promises.one(LORA) else ()
        beside = {name for adapter in adapters for name in (adapter.a, adapter.b)}
        if slopes and beside.issuperset(s.weight for s in slopes):
            raise NotApplicable("the gradients of adapters are compared with those of the weights that they change")
        slopes = [s for s in slopes if s.weight not in beside]
        if not slopes:
            return self.result(VACUOUS, "no gradient to speak of")
        off = worst([s.deviation() for s in slopes])
        detail = f"{counted(len(slopes), 'weight')} after {print_names(c.promises.network)}"
        if off.excess > 1:
            own = _original_slopes(c)
            scale = _scale(own)
            if scale != 1:
                off = worst([s.deviation(scale) for s in slopes])
                detail += f", with the original's loss scale of {scale:.3g}"
            if off.excess > 1 and own and (theirs := worst([s.deviation(scale) for s in own])).excess > 1:
                no = f"no derivative of its loss either ('{theirs.where}' is off by {theirs.relative:.2g})"
                found = f"the original's gradients are {no}"
                if all(p.name == REPLACE for p in c.promises.network):
                    raise NotApplicable(f"{found}, and another optimizer is to take them as they are")
                why = "give other --data, if it does not stop gradients on purpose (a straight-through estimator)"
                return self.result(VACUOUS, f"{found}: {why}", off)
        return self.result(FAILED if off.excess > 1 else PASSED, detail, off)

    def _same_gradients(self, c: Context) -> Result | None:
        """Whether the weights that are left have the original's gradients; None where the original does not run."""
        batch, ours = c.micro_batches(0)[0], c.reference
        try:
            theirs = Reference(without_dropout(runnable(c.original, c.promises, c.program.target)), c.device)
            wanted = totals(theirs.probe, theirs.micro(theirs.initial, batch).gradients)
        except Error:  # no kernel for what was frozen away
            return None
        found = totals(ours.probe, ours.micro(ours.initial, batch).gradients)
        if any(not equal(g, wanted[n]) for n, g in found.items()):
            floor = totals(theirs.probe, {n: np.abs(g) for n, g in theirs.noise(theirs.initial, batch).items()})
            off = [deviation(n, g, wanted[n], 0 * wanted[n], [wanted[n] + floor[n]]) for n, g in found.items()]
        else:
            off = [EQUAL]
        return self.verdict(off, f"{counted(len(found), 'trained weight')} with the original's gradients")


@dataclass(frozen=True)
class Slope:
    """Of the loss along a direction of one weight: as the gradient says, and as differences of several lengths do."""

    weight: str
    norm: float
    said: float
    seen: tuple[float, ...]

    def deviation(self, scale: float = 1.0) -> Deviation:
        error = min(abs(scale * seen - self.said) for seen in self.seen)
        relative = error / max(self.norm, 1e-30)
        return Deviation(self.weight, error, relative, 0.0, TOLERANCE, 0.0, relative / TOLERANCE)


def measure(reference: Reference, batch: Batch, seed: int) -> list[Slope] | None:
    """For weights whose gradients are not small, and not sparse: such a one gives rows without their places. None where
    the loss is not one number."""
    probe, state = reference.probe, reference.initial
    micro = reference.micro(state, batch)
    if not isinstance(next(iter(micro.outputs.values()), None), float):
        return None
    rng = np.random.default_rng(seed)
    gradients = {weight: g.astype(np.float64) for weight, g in totals(probe, micro.gradients).items()}
    largest = max(float(np.linalg.norm(g)) for g in gradients.values())
    strong = [w for w, g in gradients.items() if np.linalg.norm(g) >= 1e-2 * largest]
    strong = [w for w in strong if state[w].dtype == np.float32 and state[w].shape == gradients[w].shape]
    slopes = []
    for weight in strong[:: -(-len(strong) // WEIGHTS) or 1]:
        g = gradients[weight]
        # Along the gradient itself, with noise, so that a wrong element shows too.
        direction = np.sign(rng.standard_normal(g.shape)) * np.abs(g) * 0.5 + g
        direction /= np.linalg.norm(direction)
        length = max(float(np.linalg.norm(state[weight])), 1.0)
        seen = []
        for step in STEPS:
            losses = []
            for sign in (1, -1):
                there = (state[weight] + sign * step * length * direction).astype(np.float32)
                out = reference.micro({**state, weight: there}, batch).outputs
                losses.append(float(next(iter(out.values()))))
            seen.append((losses[0] - losses[1]) / (2 * step * length))
        slopes.append(Slope(weight, float(np.linalg.norm(g)), float((g * direction).sum()), tuple(seen)))
    return slopes


def _original_slopes(c: Context) -> list[Slope]:
    """Those of the original. MindSpore's own are wrong for some losses on some data: of ``kl_div`` where a target is
    negative. On as many samples as it was exported with. Empty where they cannot be measured."""
    try:
        original = runnable(c.original, c.promises, c.program.target)
        shapes = [tensor_type(v).shape for graph in original.graphs.values() for v in graph.inputs]
        batch = tuple(
            np.resize(a, [own if d < 0 else d for d, own in zip(shape, a.shape, strict=True)])
            for shape, a in zip(shapes, c.micro_batches(0)[0], strict=True)
        )
        return measure(Reference(without_dropout(original), c.device), batch, c.seed) or []
    except Error:
        return []


def _scale(slopes: list[Slope]) -> float:
    """By how much gradients exceed the derivative of the loss: the training cell may take them from a multiple of the
    loss that it returns (``sens`` of a TrainOneStepCell)."""
    ratios = [s.said / s.seen[-1] for s in slopes if s.seen[-1]]
    scale = float(np.median(ratios)) if ratios else 1.0
    return scale if abs(scale - 1) > TOLERANCE else 1.0
