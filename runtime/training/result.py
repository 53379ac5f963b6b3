"""The result of one step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from ...ir.core.names import (
    ACCEPTED,
    GRADIENT_NORM,
    LOSS,
    LOSS_SCALE,
    OVERFLOW,
    SKIPPED_CYCLES,
    TRIALS_MADE,
    loss_scale_of,
)

T = TypeVar("T", bool, int, float)


class StepResult:
    """Result of one micro-batch. A value is read from the device when you ask for it, so a step does not wait by
    itself.

    ``graph`` names the graph that consumed the micro-batch. ``ended_cycle`` is True on the last micro-batch of a cycle.
    ``outputs`` holds every named output of the graphs that ran: a number where it has one element, else an array.
    """

    __slots__ = ("_read", "ended_cycle", "graph", "raw")

    def __init__(self, graph: str, raw: Mapping[str, Any], ended_cycle: bool):
        self.graph = graph
        self.ended_cycle = ended_cycle
        self.raw = raw
        """Outputs by name as MindSpore returned them."""
        self._read: dict[str, Any] = {}

    def _value(self, name: str) -> Any:
        if name not in self._read:
            self._read[name] = _to_python(self.raw[name]) if name in self.raw else None
        return self._read[name]

    def _as(self, kind: type[T], name: str) -> T | None:
        value = self._value(name)
        return None if value is None else kind(value)

    @property
    def loss(self) -> float | np.ndarray | None:
        """A float, or an array where the network does not reduce its loss; None from a graph without a loss."""
        value: float | np.ndarray | None = self._value(LOSS)
        return value

    @property
    def overflow(self) -> bool | None:
        """Whether a gradient of the cycle was not finite; None where the program does not check, or not yet."""
        return self._as(bool, OVERFLOW)

    @property
    def skipped_cycles(self) -> int | None:
        """The number of updates in a row that were skipped, up to this one; None where none was due, or nothing is
        checked.
        """
        return self._as(int, SKIPPED_CYCLES)

    @property
    def loss_scale(self) -> float | None:
        """The factor of the loss in the backward part; ``loss`` itself is not scaled."""
        return self._as(float, LOSS_SCALE)

    @property
    def loss_scales(self) -> tuple[float, ...] | None:
        """The scale of each group of layers, in the order of their numbers; None without ``group-loss-scale``."""
        scales: list[float] = []
        while (value := self._value(loss_scale_of(len(scales)))) is not None:
            scales.append(float(value))
        return tuple(scales) or None

    @property
    def scales(self) -> tuple[float, ...]:
        """The loss scale, or those of all groups of layers; empty where there is none."""
        return self.loss_scales or (() if self.loss_scale is None else (self.loss_scale,))

    @property
    def gradient_norm(self) -> float | None:
        """The norm of all gradients of the cycle before clipping; None where none is due, or none is reported."""
        return self._as(float, GRADIENT_NORM)

    @property
    def trials(self) -> int | None:
        """The number of trials that the line search of the cycle made; None where there was none."""
        return self._as(int, TRIALS_MADE)

    @property
    def accepted(self) -> bool | None:
        """Whether the line search of the cycle accepted its last trial; None where there was none."""
        return self._as(bool, ACCEPTED)

    @property
    def updated(self) -> bool:
        """Whether the weights were updated: the step ended a cycle, and no overflow made the program skip that."""
        if not self.ended_cycle:
            return False
        # Dropping single micro-batches is overflow too, but the update happens.
        skipped = self.skipped_cycles
        return not self.overflow if skipped is None else skipped == 0

    @property
    def outputs(self) -> dict[str, Any]:
        return {name: self._value(name) for name in self.raw}

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.outputs.items())
        return f"StepResult({shown}{', ' if shown else ''}updated={self.updated}, graph={self.graph!r})"


def _to_python(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_to_python(v) for v in value)
    if getattr(value, "size", 0) == 1:
        return value.item()
    # The array shares the device's memory, which the next step may write.
    array = np.array(value.asnumpy() if hasattr(value, "asnumpy") else value)
    return array.item() if array.size == 1 else array
