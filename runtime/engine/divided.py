"""A graph that runs in pieces (:mod:`runtime.lowering.division`). Imports no MindSpore before it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.core.attributes import TensorValue
from ...ir.core.data import numbers
from ...ir.core.graph import Constant, Graph
from ..lowering.division import Division, Piece

Results = tuple[Any, ...]


class Divided:
    """``load`` gives what runs a graph."""

    def __init__(self, division: Division, load: Callable[[Graph], Any]) -> None:
        self.names = [graph.name for graph in division.graphs]
        self._condition = division.condition
        # As graphs of a program, the last one first.
        runners = {graph.name: load(graph) for graph in reversed(division.graphs)}
        self._before = _Loaded(division.before, runners)
        self._ways = [(_Loaded(way.piece, runners), way.results) for way in division.ways]

    def run(
        self, inputs: Results, run: Callable[[Graph, Any, Results], Results], read: Callable[[str], Any]
    ) -> Results:
        """Runs one micro-batch: ``run`` runs a graph by what was loaded for it, ``read`` gives the value of a state."""
        found = self._before.run(inputs, run)
        (holds,) = self._condition.run((), lambda name: read(name).item()).returned
        way, places = self._ways[0 if holds.value else 1]
        found = (*found, *way.run(inputs, run))
        return tuple([found[i] for i in places])


class _Loaded:
    def __init__(self, piece: Piece, runners: Mapping[str, Any]) -> None:
        self._piece = piece
        self._runner = None if piece.graph is None else runners[piece.graph.name]
        self._constants = _tensors(piece.constants)

    def run(self, inputs: Results, run: Callable[[Graph, Any, Results], Results]) -> Results:
        graph = self._piece.graph
        if graph is None:
            return self._constants
        return run(graph, self._runner, tuple([inputs[i] for i in self._piece.takes]))


def _tensors(constants: Sequence[Constant]) -> Results:
    if not constants:
        return ()
    import mindspore

    values = [constant.value for constant in constants if isinstance(constant.value, TensorValue)]
    return tuple([mindspore.Tensor(numbers(value.type, value.data)) for value in values])
