"""The measurement behind ``mixed-precision{error=…,data=FILE}``: gradients in float32 and behind the pass."""

from __future__ import annotations

from ..ir.core.measuring import Errors
from ..ir.core.program import Program
from .verification.data import file_batches
from .verification.gradient_error import Exact

MICRO_BATCHES = 4
"""So many of the file are measured, from its start; the worst counts."""


def gradient_errors(program: Program, data: str) -> Errors:
    """Opens the measurement of a float32 training graph. Error where the file cannot be read or does not fit."""
    (graph,) = program.graphs.values()
    return Exact(program, file_batches(data, graph, MICRO_BATCHES)).errors
