"""The search at the end of a cycle: trials on the cycle's micro-batches, which are kept for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.core.errors import RuntimeFailure
from ...ir.core.line_search import Search
from ...ir.core.wording import agreed, counted
from ..engine.engine import Engine, flat_outputs
from ..state.checkpoint import tensor_to_numpy


class LineSearch:
    """Keeps what each micro-batch of the running cycle was fed with, and runs the search when the cycle ends."""

    def __init__(self, engine: Engine, search: Search):
        self._engine = engine
        self._search = search
        self._kept: list[tuple[Any, ...]] = []

    def keep(self, inputs: tuple[Any, ...], outputs: dict[str, Any]) -> None:
        """One micro-batch; takes what is meant for the trials alone out of ``outputs``."""
        self._kept.append((*inputs, *(outputs.pop(name) for name in self._search.kept)))

    def run(self) -> Mapping[str, Any]:
        """Trials until one is accepted or there are no more; the outputs of the last judge, none if none was due.

        Waits for the device before each trial.
        """
        outputs: dict[str, Any] = {}
        judge = self._engine.graphs[self._search.judge]
        for _ in range(self._search.at_most):
            if not self._engine.memory.read(self._search.pending).item():
                break
            for inputs in self._kept:
                self._engine.run(self._search.trial, inputs)
            outputs.update(flat_outputs(judge, self._engine.run(self._search.judge, ())))
        self._kept.clear()
        return outputs

    def kept(self) -> list[list[Any]]:
        """The micro-batches of the running cycle so far, as arrays, for a state that is saved now."""
        return [[tensor_to_numpy(value) for value in row] for row in self._kept]

    def resume(self, position: int, kept: Sequence[Sequence[Any]]) -> None:
        """The cycle stands at ``position`` now, and was fed with ``kept``; RuntimeFailure where that is not all."""
        import mindspore

        if position and position != len(kept) and position != len(self._kept):
            raise RuntimeFailure(
                f"{counted(position, 'micro-batch')} of a window {agreed(position, 'is', 'are')} pending in this "
                "state, and the line search at the window's end needs them again, but they are not there: only what "
                "Session.save writes holds them. Save the state at the end of a window (StepResult.ended_cycle), or "
                "end the window early first."
            )
        if not position:
            self._kept.clear()
        elif len(kept) == position:
            self._kept = [tuple(mindspore.Tensor(value) for value in row) for row in kept]
