"""The gradients of a network that a pass has made are the derivative of its loss, by MindSpore's autodiff."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...ir.core.errors import Error
from ...ir.core.graph import tensor_type
from ...ir.core.wording import counted
from .autodiff import LossGradients, NotDifferentiated
from .base import runnable
from .changes import totals
from .context import Context, NotApplicable, Property, worst
from .deterministic import without_dropout
from .promises import FROZEN, LORA, REPLACE, print_names
from .reference import Batch, Reference, Values
from .report import EQUAL, FAILED, PASSED, VACUOUS, Deviation, Result
from .tolerance import deviation, equal


class Derivative(Property):
    """Where a pass makes another network (less BatchNorm, a normalised head), the original cannot judge its gradients.
    So MindSpore differentiates the forward part of that network, and each weight's gradient is compared with what the
    optimizer is to get, up to the noise floor of gradients. For float32. Nor need those be a derivative of a network
    that only lost the training of some weights: the others have the original's."""

    name = "derivative"
    promise = (
        "the gradients of the changed network are the derivative of its loss, beside frozen weights the original's"
    )

    def check(self, c: Context) -> Result:
        if not c.promises.network:
            raise NotApplicable("no pass makes another network")
        if c.reference.probe.turns > 1:
            raise NotApplicable("the training cell updates between its losses, so no one loss has all gradients")
        names = {p.name for p in c.promises.network}
        if names in ({FROZEN}, {FROZEN, REPLACE}):
            c.needs_forward()
            c.takes_long()
            if (same := self._same_gradients(c)) is not None:
                return same
        if c.reference.probe.unit > 2.0**-20:
            raise NotApplicable("half precision rounds a scaled loss and an unscaled one otherwise")
        c.needs_forward()
        c.takes_long()
        batch = c.micro_batches(0)[0]
        try:
            times, off = _against_loss(c.reference, batch, c.device)
        except NotDifferentiated as reason:
            raise NotApplicable(str(reason)) from reason
        detail = f"{counted(len(c.reference.probe.weights), 'weight')} after {print_names(c.promises.network)}"
        if off.excess > 1 or times != 1:
            theirs, no = _of_original(c)
            if no.excess > 1:
                found = "the original's gradients are no derivative of its loss either"
                if names <= {REPLACE, LORA, FROZEN}:
                    raise NotApplicable(f"{found} ('{no.where}'), and each pass takes them as they are")
                why = "give other --data, if it does not stop gradients on purpose (a straight-through estimator)"
                return self.result(VACUOUS, f"{found} ('{no.where}' is off by {no.relative:.2g}): {why}", off)
            if not np.isclose(times, theirs, rtol=1e-3):
                detail += f": {times:.3g} times its derivative, and the original's {theirs:.3g} times"
                return self.result(FAILED, detail, off)
            detail += f", with the original's loss scale of {times:.3g}" if times != 1 else ""
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
        off = worst([EQUAL, *_deviations(found, wanted, theirs, batch)])
        return self.verdict([off], f"{counted(len(found), 'trained weight')} with the original's gradients")


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
    times = float(
        sum((own[n].astype(np.float64) * g).sum() for n, g in shared.items())
        / max(sum(np.square(own[n], dtype=np.float64).sum() for n in shared), 1e-300)
    )
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
