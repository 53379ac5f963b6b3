"""How far the gradients of a network in half precision are from those in float32, weight by weight."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ir.core.program import Program
from ...passes.framework.base import Pass
from ...passes.framework.manager import compile_program
from ...passes.framework.pipeline import parse_pipeline
from ...passes.step.dynamic_loss_scale import scales_its_loss
from ...passes.step.names import SCALE
from .changes import totals
from .deterministic import without_dropout
from .reference import Batch, Reference

SCALES = tuple(2.0**k for k in (16, 12, 8, 4, 0))
"""The loss scales that are tried, from the largest, as a dynamic one would come down."""
STATIC = "loss-scale{mode=static,init=1.0}"
"""The pass by which a network gets a loss scale, which is then set."""
NOTHING = 2.0**-16
"""A weight whose gradient is smaller than this beside the largest, by the root of the mean square, has none but
rounding: a bias in front of a BatchNorm."""


class Exact:
    """The gradients of a float32 program for some micro-batches, from its initial state."""

    def __init__(
        self, program: Program, batches: Sequence[Batch], device: str = "CPU", reference: Reference | None = None
    ):
        """``reference``: the program without dropout, where somebody has it already."""
        self.program, self.batches, self.device = program, batches, device
        self.reference = reference or Reference(without_dropout(program), device)
        self.gradients = [_totals(self.reference, batch) for batch in batches]
        size = {w: max(_root_mean_square(g[w]) for g in self.gradients) for w in self.gradients[0]}
        largest = max(size.values(), default=0.0)
        self.least = NOTHING * largest
        self.weights = [w for w, s in size.items() if s > self.least]
        """Those that have a gradient to speak of, in one of the micro-batches."""

    def errors(self, passes: Sequence[Pass], half: Reference | None = None) -> dict[str, float]:
        """For each weight: the root of the sum of squares of what ``passes`` change its gradient by, relative to the
        gradient's, and infinity where it overflows whatever the loss scale. Of the micro-batches in which it has one
        the worst counts. ``half``: what they make of the program, with a loss scale, where somebody has it already."""
        scaled = not scales_its_loss(self.program)
        if half is None:
            scaling = parse_pipeline(STATIC) if scaled else []
            program = compile_program(self.program, [*passes, *scaling], reproducer_directory=None)
            half = Reference(without_dropout(program), self.device)
        found = dict.fromkeys(self.weights, 0.0)
        for exact, batch in zip(self.gradients, self.batches, strict=True):
            ours, scale = self._scaled(half, batch) if scaled else (_totals(half, batch), 1.0)
            for weight in self.weights:
                if _root_mean_square(exact[weight]) <= self.least:
                    continue  # it has none in this micro-batch, where a branch goes another way
                # Where a function returns a gradient, the scale may stand behind its call.
                forms = {1.0: ours[weight], scale: ours[weight] / np.float32(scale)}.values()
                found[weight] = max(found[weight], min(relative_error(form, exact[weight]) for form in forms))
        return found

    def _scaled(self, half: Reference, batch: Batch) -> tuple[dict[str, np.ndarray], float]:
        """With the largest scale at which nothing overflows, or else with the smallest; and that scale."""
        for scale in SCALES:
            state = {**half.initial, SCALE: np.asarray(scale, np.float32)}
            with np.errstate(all="ignore"):
                gradients = totals(half.probe, half.micro(state, batch).gradients)
            if all(np.isfinite(g).all() for g in gradients.values()):
                break
        return gradients, scale


def _totals(reference: Reference, batch: Batch) -> dict[str, np.ndarray]:
    return totals(reference.probe, reference.micro(reference.initial, batch).gradients)


def relative_error(ours: np.ndarray, exact: np.ndarray) -> float:
    if not np.isfinite(ours).all():
        return math.inf
    off = float(np.linalg.norm(ours.astype(np.float64) - exact))
    return off / float(np.linalg.norm(exact.astype(np.float64))) if off else 0.0


def _root_mean_square(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64)))) if array.size else 0.0
