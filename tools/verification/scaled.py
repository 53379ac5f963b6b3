"""The judge of a network in half precision whose loss is scaled: its gradients are scaled too, as far as that helps.

Half precision has an absolute spacing: float16 knows nothing between 0 and 2⁻²⁴. What an unscaled backward part loses
there, a scaled one keeps. So the same network also runs with the program's loss scale, and its gradients are divided by
that. Where a weight's scaled gradient is as near to float32 as the unscaled one, it is the one to be compared with. A
pass that scales wrongly takes it away from float32.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ...ir.analysis.batch.joins import Beside
from ...ir.core.program import Program
from ...passes.framework.manager import compile_program
from ...passes.framework.pipeline import parse_pipeline
from ...passes.step.dynamic_loss_scale import scales_its_loss
from ...passes.step.names import SCALE
from ...passes.step.unscaling import TOLD
from ...runtime.training.result import StepResult
from .autodiff import LossGradients, NotDifferentiated
from .changes import totals
from .deterministic import without_dropout
from .gradient_error import STATIC, relative_error
from .probe import Slot
from .reference import Batch, Micro, Reference, Values

ROUNDING = 2.0
"""Scaled and unscaled gradients round differently, so that of two equally good ones either may be nearer."""


class Scaling(Reference):
    """Gradients are unscaled until :meth:`scale_by` says by how much the program scales its loss."""

    _scale = 1.0

    def scale_by(self, scale: float) -> None:
        if scale != self._scale:
            self._scale = scale
            self.forget()

    def step(self, state: Mapping[str, np.ndarray], batch: Batch) -> tuple[StepResult, Values]:
        """Of the untouched original as long as nothing is scaled."""
        result, after = super().step(state, batch)
        micro = self.micro(state, batch) if self._scale != 1 else None
        return result, after if micro is None else {**after, **self.update(state, batch, micro.gradients)}

    def _micro(self, state: Mapping[str, np.ndarray], batch: Batch) -> Micro:
        plain = super()._micro(state, batch)
        chosen = self._chosen(state, batch, plain) if self._scale != 1 else {}
        return Micro(plain.outputs, {**plain.gradients, **chosen}, plain.written, plain.weight) if chosen else plain

    @abstractmethod
    def _chosen(self, state: Mapping[str, np.ndarray], batch: Batch, plain: Micro) -> Values:
        """The gradients that are taken from the scaled loss."""


class HalfReference(Scaling):
    """An original that computes in half precision by itself. Its scaled gradients are those of a multiple of its loss,
    by MindSpore's autodiff, where a weight has one and MindSpore differentiates the forward part."""

    def vanishing(self, state: Mapping[str, np.ndarray], batch: Batch) -> Mapping[str, float]:
        found = super().vanishing(state, batch)
        chosen = self._chosen(state, batch, None) if self._scale != 1 else {}
        return {name: least / self._scale if name in chosen else least for name, least in found.items()}

    def _chosen(self, state: Mapping[str, np.ndarray], batch: Batch, plain: Micro | None) -> Values:
        try:
            own = self._gradients.of(state, batch)
        except NotDifferentiated:
            return {}
        slots = [slot for slot in self.probe.gradients if self._alone(slot) and slot.weights[0] in own]
        with np.errstate(all="ignore"):
            divided = {s.name: own[s.weights[0]] / own[s.weights[0]].dtype.type(self._scale) for s in slots}
        return {s.name: divided[s.name].astype(s.type.dtype.value).reshape(s.type.shape) for s in slots}

    def _alone(self, slot: Slot) -> bool:
        """Whether a gradient is the only one of its weight."""
        return sum(slot.weights[0] in other.weights for other in self.probe.gradients) == 1

    @property
    def _gradients(self) -> LossGradients:
        if self._scale not in self._by_scale:
            self._by_scale[self._scale] = LossGradients(self.base, self._device, self._scale)
        return self._by_scale[self._scale]

    @cached_property
    def _by_scale(self) -> dict[float, LossGradients]:
        return {}


class ScaledReference(Scaling):
    """``exact``: the same network in float32."""

    def __init__(
        self,
        base: Program,
        exact: Program,
        device: str = "CPU",
        weight: tuple[str, Beside] | None = None,
        stages: Sequence[str] = (),
        unscale: str = TOLD,
    ):
        super().__init__(without_dropout(base), device, weight, stages, unscale)
        self._float32 = without_dropout(exact)

    @cached_property
    def exact(self) -> Reference:
        return Reference(self._float32, self._device)

    @cached_property
    def scaled(self) -> Reference | None:
        """The same network with a loss scale; None where the training cell has one by itself."""
        if scales_its_loss(self.base):
            return None
        return Reference(compile_program(self.base, parse_pipeline(STATIC), reproducer_directory=None), self._device)

    def vanishing(self, state: Mapping[str, np.ndarray], batch: Batch) -> Mapping[str, float]:
        found = super().vanishing(state, batch)
        nearer = self._chosen(state, batch, Reference._micro(self, state, batch)) if self._scale != 1 else {}
        return {name: least / self._scale if name in nearer else least for name, least in found.items()}

    def _chosen(self, state: Mapping[str, np.ndarray], batch: Batch, plain: Micro) -> Values:
        """The gradients that are as near to float32 where they are scaled."""
        if self.scaled is None:
            return {}
        names = [slot.name for slot in self.probe.gradients]
        theirs = [slot.name for slot in self.scaled.probe.gradients]
        with np.errstate(all="ignore"):
            raw = self.scaled.micro({**state, SCALE: np.asarray(self._scale, np.float32)}, batch).gradients
            divided = {n: (g / g.dtype.type(self._scale)).astype(g.dtype) for n, g in raw.items()}
        wanted = totals(self.exact.probe, self.exact.micro(_of(self.exact, state), batch).gradients)
        error = {n: relative_error(g, wanted[n]) for n, g in totals(self.probe, plain.gradients).items()}
        chosen: Values = {}
        for form in (divided, raw):  # where a function returns a gradient, the scale may stand behind its call
            found = {n: relative_error(g, wanted[n]) for n, g in totals(self.scaled.probe, form).items()}
            for name, at, slot in zip(names, theirs, self.probe.gradients, strict=True):
                weight = slot.weights[0]
                if found[weight] <= ROUNDING * error[weight]:
                    chosen[name] = form[at]
        return chosen


def _of(reference: Reference, state: Mapping[str, Any]) -> Values:
    """The state by the names of a reference."""
    return {name: state.get(name, value) for name, value in reference.initial.items()}
