"""What passes take for the gradient of the loss is that, by MindSpore's autodiff of the forward part.

Which value a gradient is, the compiler finds by an analysis, and the formulas and the judge go by the same one. The
loss, which MindSpore differentiates, and the scopes of the file, which say what the cell of the optimizer takes, share
none of it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...ir.core.errors import Error
from ...ir.core.graph import tensor_type
from ...ir.core.wording import counted
from ...passes.step.unscaling import TOLD
from .autodiff import LossGradients, NotDifferentiated
from .changes import totals
from .context import Context, NotApplicable, Property, worst
from .deterministic import without_dropout
from .probe import HANDED
from .promises import CLIP, FROZEN, LORA, REPLACE, SCHEDULE, print_names
from .reference import Batch, Reference, Values
from .report import EQUAL, EXACT, FAILED, PASSED, VACUOUS, Deviation, Result
from .stated import runnable
from .tolerance import SAFETY, STEP, deviation, equal

FLOAT32 = 2.0**-20
"""Half precision, whose unit is larger, rounds a scaled loss and an unscaled one otherwise."""
NOISE = 0.1
"""A gradient is noise, and says nothing, where its noise floor is this part of it."""


class Derivative(Property):
    """Where passes make another network (less BatchNorm, a normalised head), its gradients are the derivative of its
    loss, up to their noise floor. Gradients that are none on purpose (a straight-through estimator) are none in the
    original either, and then nothing is shown. The training cell may take them from a multiple of the loss."""

    name = "derivative"
    promise = "the gradients of the changed network are the derivative of its loss"

    def check(self, c: Context) -> Result:
        changing = [p for p in c.promises.network if p.name not in (FROZEN, SCHEDULE)]
        if not changing:
            raise NotApplicable("no pass makes another network")
        if c.reference.probe.turns > 1:
            raise NotApplicable("the training cell updates between its losses, so no one loss has all gradients")
        if c.reference.probe.unit > FLOAT32:
            raise NotApplicable("half precision rounds a scaled loss and an unscaled one otherwise")
        c.needs_forward()
        c.takes_long()
        try:
            times, off = _against_loss(c.reference, c.micro_batches(0)[0], c.device)
        except NotDifferentiated as reason:
            raise NotApplicable(str(reason)) from reason
        detail = f"{counted(len(c.reference.probe.weights), 'weight')} after {print_names(changing)}"
        if off.excess > 1 or times != 1:
            theirs, no = _of_original(c)
            if no.excess > 1:
                found = "the original's gradients are no derivative of its loss either"
                if {p.name for p in changing} <= {REPLACE, LORA}:
                    raise NotApplicable(f"{found} ('{no.where}'), and each pass takes them as they are")
                why = "give other --data, if it does not stop gradients on purpose (a straight-through estimator)"
                return self.result(VACUOUS, f"{found} ('{no.where}' is off by {no.relative:.2g}): {why}", off)
            if not np.isclose(times, theirs, rtol=1e-3):
                detail += f": {times:.3g} times its derivative, and the original's {theirs:.3g} times"
                return self.result(FAILED, detail, off)
            detail += f", with the original's loss scale of {times:.3g}" if times != 1 else ""
        return self.result(FAILED if off.excess > 1 else PASSED, detail, off)


class HandedGradients(Property):
    """For the weights whose gradients are more than noise: what is clipped, or given to another optimizer, is the
    derivative of the loss; and where the file tells the optimizer's cell, that cell takes it as it is. The training
    cell may have multiplied it there. What the user says (``unscale``) is believed. Gradients that are none on purpose
    are no common multiple of the derivative."""

    name = "handed gradients"
    promise = (
        "what is clipped, or given to another optimizer, is the gradient of the loss as the optimizer is handed it"
    )

    def check(self, c: Context) -> Result:
        clips, uses = c.promises.having(CLIP), c.promises.having(CLIP) or c.promises.having(REPLACE)
        if not uses:
            raise NotApplicable("no pass clips gradients or gives them to another optimizer")
        (c.needs_update if clips else c.needs_forward)()
        reference = c.reference if clips else c.replaced
        unknown = f"whether {uses[-1].name} takes the gradient of the loss was not compared"
        if reference is None or reference.probe.closed:
            raise NotApplicable(f"{unknown}, since what the optimizer is handed cannot be had")
        if reference.probe.unit > FLOAT32 or reference.probe.turns > 1:
            raise NotApplicable(f"{unknown}, since the network computes in half precision, or trains in turn")
        batch, start, probe = c.micro_batches(0)[0], reference.initial, reference.probe
        try:
            own = LossGradients(reference.base, c.device).of(start, batch)
        except NotDifferentiated as reason:
            raise NotApplicable(f"{unknown}, since {reason}") from None
        if not any(g.any() for g in own.values()):
            raise NotApplicable(f"{unknown}, since the derivative of the loss is zero: it stops gradients on purpose")
        cut = next(cut for cut in probe.cuts if cut.stage in ("clip", HANDED))
        raw = reference.micro(start, batch).gradients
        given, handed = totals(probe, raw), totals(cut, reference.handed(cut.stage, start, batch, raw))
        bound = {}
        for weight, floor in noise_of(reference, batch).items():
            rounding = SAFETY * _norm(floor) / max(_norm(given[weight]), 1e-30) + STEP * 2.0**-23
            if weight in handed and weight in own and handed[weight].any() and rounding <= NOISE:
                bound[weight] = rounding
        if not bound:
            return self.result(VACUOUS, "no gradient to speak of")
        by = {w: _times(given[w], handed[w]) for w in bound}
        multiples = {w: _times(own[w], handed[w]) for w in bound}
        spread = max(multiples.values()) - min(multiples.values())
        common = spread <= 2 * max(bound.values()) * max(map(abs, multiples.values()))
        other, off = "", EXACT
        for weight, multiple in multiples.items():
            what = f"what {uses[-1].name} takes of '{weight}' is {multiple:.3g} times the gradient of the loss"
            error = _norm(handed[weight] - own[weight]) / _norm(handed[weight])
            found = Deviation(weight, error, error, 0.0, bound[weight], 0.0, error / bound[weight])
            if cut.taken[weight] is False:
                return self.result(FAILED, f"{what}, and the optimizer's cell is handed something else", found)
            if found.excess <= 1:
                off = max(off, found, key=lambda d: d.excess)
            elif cut.taken[weight] is None and uses[-1].options()["unscale"] == TOLD and (common or by[weight] != 1):
                return self.result(FAILED, f"{what}, and no cell of the file tells that the optimizer gets that", found)
            elif by[weight] == 1:
                other = what
        if other:
            raise NotApplicable(f"{other}, as the optimizer is handed it")
        return self.result(PASSED, f"{len(bound)} of {len(handed)}, by MindSpore's autodiff of the loss", off)


def _of_original(c: Context) -> tuple[float, Deviation]:
    """The same of the original, on as many samples as it was exported with. MindSpore's own gradients are wrong for
    some losses on some data: of ``kl_div`` where a target is negative."""
    original = runnable(c.original, c.promises, c.program.target)
    shapes = [tensor_type(v).shape for graph in original.graphs.values() for v in graph.inputs]
    batch = tuple(
        np.resize(a, [own if d < 0 else d for d, own in zip(shape, a.shape, strict=True)])
        for shape, a in zip(shapes, c.micro_batches(0)[0], strict=True)
    )
    try:
        return _against_loss(Reference(without_dropout(original), c.device), batch, c.device)
    except (Error, NotDifferentiated) as error:
        raise NotApplicable(f"the original's gradients cannot be held against its loss: {error}") from error


def _against_loss(reference: Reference, batch: Batch, device: str) -> tuple[float, Deviation]:
    """How many times the derivative of its loss the gradients of a program are (1, unless the training cell takes them
    from a multiple of the loss that it returns, ``sens`` of a TrainOneStepCell), and how far they are from that."""
    found = totals(reference.probe, reference.micro(reference.initial, batch).gradients)
    own = LossGradients(reference.base, device).of(reference.initial, batch)
    shared = {n: g for n, g in found.items() if n in own and g.shape == own[n].shape}
    if not any(g.any() for g in shared.values()):
        raise NotApplicable("no gradient to speak of")
    off = worst([EQUAL, *_deviations(shared, own, reference, batch)])
    if off.excess <= 1:
        return 1.0, off
    together = {n: np.concatenate([g.ravel() for g in of.values()]) for n, of in
                (("own", {n: own[n] for n in shared}), ("found", shared))}  # fmt: skip
    times = _times(together["own"], together["found"])
    scaled = {n: (own[n] * times).astype(own[n].dtype) for n in shared}
    return times, worst([EQUAL, *_deviations(shared, scaled, reference, batch)])


def _deviations(found: Values, wanted: Values, reference: Reference, batch: Batch) -> Iterable[Deviation]:
    """Of gradients, up to their noise floor in the reference; measured where one differs."""
    if all(equal(g.astype(wanted[n].dtype), wanted[n]) for n, g in found.items()):
        return
    floor = noise_of(reference, batch)
    for n, g in found.items():
        yield deviation(n, g.astype(wanted[n].dtype), wanted[n], 0 * wanted[n], [wanted[n] + floor[n]])


def noise_of(reference: Reference, batch: Batch) -> Values:
    """The noise floor of each weight's gradient."""
    noise = reference.noise(reference.initial, batch)
    return totals(reference.probe, {n: np.abs(g) for n, g in noise.items()})


def _times(one: np.ndarray, other: np.ndarray) -> float:
    """How many times one gradient another is."""
    if one.shape != other.shape or np.array_equal(one, other):
        return 1.0
    wide = one.astype(np.float64)
    return float((wide * other).sum() / max(float(np.square(wide).sum()), 1e-300))


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array.astype(np.float64)))
