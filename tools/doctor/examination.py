"""All checks, and those that boost-compile makes by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...ir.core.program import Program
from .certain import double_precision, forgotten_training_mode, non_finite_state, unused_inputs
from .finding import Finding
from .joined_batch import not_the_big_batch
from .loss_scale import own_loss_scale

if TYPE_CHECKING:
    from ...runtime.data.sources import NamedArrays

Check = Callable[[Program], Iterator[Finding]]
CERTAIN: tuple[Check, ...] = (forgotten_training_mode, non_finite_state, unused_inputs, double_precision)
CHECKS: tuple[Check, ...] = (*CERTAIN, own_loss_scale, not_the_big_batch)


def certain_findings(program: Program) -> list[Finding]:
    return [finding for check in CERTAIN for finding in check(program)]


def examine(program: Program, data: NamedArrays | None = None) -> list[Finding]:
    """The findings; with ``data`` also those in it. RuntimeFailure where it holds more or fewer arrays than the program
    has inputs."""
    found = [finding for check in CHECKS for finding in check(program)]
    if data is None:
        return found
    from .data import data_findings

    return [*found, *data_findings(program, data)]
