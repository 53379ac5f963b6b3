"""The result of ``session.cell``: of one form in every step, as MindSpore's own training cells have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.analysis.training.network import network_parts
from ...ir.analysis.training.origins import Origins
from ...ir.core.graph import Graph
from ...ir.core.names import LOSS, LOSS_SCALE, NAMES, OVERFLOW, loss_scale_of
from ...ir.core.program import Program
from ..engine.engine import Engine

OWN = frozenset(name.text for name in NAMES if name.kind == "result")
"""Results that passes add, or that have a place of their own; all others are those of the training cell."""


class CellResult:
    """Makes the result of a call from the outputs of a micro-batch.

    The loss; for a program with an overflow check or a loss scale ``(loss, overflow, scale)``, as
    ``nn.TrainOneStepWithLossScaleCell`` returns it. Behind them stand the other results that the training cell computes
    of each micro-batch, if any. In a step that updates nothing ``overflow`` is False unless the micro-batch itself was
    dropped, and ``scale`` is what the loss is multiplied by then: 1 without a loss scale, one number for each group
    with several.

    Where the training cell returns no loss, None stands in its place before ``overflow``; without a check only the
    other results are returned, None if a micro-batch has none.
    """

    def __init__(self, program: Program, engine: Engine, consumer: str):
        graphs = [program.graphs[name] for name in program.schedule.graphs()]
        named = {name for graph in graphs for name in graph.outputs}
        self._scales = sorted(
            (n for n in named if n.startswith(loss_scale_of(""))), key=lambda n: int(n.split("_")[-1])
        )
        self._checked = bool(self._scales) or not named.isdisjoint({OVERFLOW, LOSS_SCALE})
        self._others = [n for n in program.graphs[consumer].outputs if n not in OWN and n not in self._scales]
        self._unnamed = not program.graphs[consumer].outputs
        self._engine = engine
        self._states = {name: state for graph in graphs for name, state in _scale_states(graph).items()}

    def of(self, outputs: Mapping[str, Any]) -> Any:
        """``outputs``: by name, as :class:`StepResult` has them."""
        import mindspore

        if self._unnamed and LOSS in outputs:
            return _single(tuple(outputs.values()))
        others = tuple(outputs[name] for name in self._others)
        if not self._checked:
            return _single((outputs[LOSS], *others) if LOSS in outputs else others)
        overflow = outputs.get(OVERFLOW)
        if overflow is None:
            overflow = mindspore.Tensor(False)
        return (outputs.get(LOSS), overflow, self._scale(outputs), *others)

    def _scale(self, outputs: Mapping[str, Any]) -> Any:
        import mindspore
        import numpy as np

        if not self._scales:
            return self._one_scale(LOSS_SCALE, outputs)
        scales = [self._one_scale(name, outputs).asnumpy().item() for name in self._scales]
        return mindspore.Tensor(np.array(scales, np.float32))

    def _one_scale(self, name: str, outputs: Mapping[str, Any]) -> Any:
        import mindspore

        if name in outputs:
            return outputs[name]
        # A training cell with a scale of its own returns it where it updates.
        state = self._states.get(name)
        return mindspore.Tensor(1.0 if state is None else self._engine.memory.read(state), mindspore.float32)


def _single(results: tuple[Any, ...]) -> Any:
    return results if len(results) > 1 else next(iter(results), None)


def _scale_states(graph: Graph) -> dict[str, str]:
    """The names of the states that a graph returns as loss scales, by the results' names."""
    if not any(name.startswith(LOSS_SCALE) for name in graph.outputs):
        return {}
    results = zip(graph.outputs, Origins(graph, network_parts(graph)).results(), strict=False)
    return {n: r.state.name for n, r in results if n.startswith(LOSS_SCALE) and r.state is not None}
