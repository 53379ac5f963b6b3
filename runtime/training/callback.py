"""Callbacks: the code that users hang into a training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .history import Cycle, Epoch
from .result import StepResult

Evaluate = Callable[[Any], Any]
"""Called with the session after each epoch; what it returns is recorded in the epoch."""


class Callback:
    """Base of callbacks for ``fit``; override what you need. ``session`` is the :class:`.session.Session` that trains.
    Reading a value of a step result waits for the device."""

    def on_begin(self, session: Any) -> None:
        """Before the first micro-batch."""

    def on_end(self, session: Any) -> None:
        """After the last one, or when an error ends the training."""

    def on_step(self, session: Any, number: int, result: StepResult) -> None:
        """After each micro-batch; ``number`` counts from 1."""

    def on_cycle(self, session: Any, cycle: Cycle) -> None:
        """After each optimizer step, the flushed one included."""

    def on_failed_evaluation(self, session: Any, error: Exception) -> None:
        """After an evaluation of ``fit`` that raised ``error``, which ends the training behind this call."""

    def on_epoch(self, session: Any, epoch: Epoch) -> None:
        """After each epoch and its evaluation."""
