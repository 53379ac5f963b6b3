"""The evaluation network of a program on the Parameters of a session: nothing is copied, and it writes nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ...ir.core.errors import PassError, RuntimeFailure
from ...ir.core.graph import Graph
from ...ir.core.program import Program
from ...ir.core.wording import counted
from ...ir.rewrite.batch_size.resize import batch_inputs
from ...ir.rewrite.evaluation import evaluation, with_averages
from ..data.inputs import to_tensors
from ..engine.engine import Engine

_MOST_SIZES = 8
"""Batch sizes of which a graph is kept each, where no graph takes them all."""


class Prediction:
    """Runs the network of ``program``, up to the node ``result`` if given, on ``engine``'s Parameters.

    Any number of samples is taken, as far as the graph allows: by one graph that leaves the batch open, or else by one
    for each size.
    """

    def __init__(self, engine: Engine, program: Program, result: str | None = None, *, averaged: bool = False):
        network = evaluation(program, result)
        self.evaluation = with_averages(network, program) if averaged else network
        self._engine = engine
        self._batched: frozenset[str] = frozenset()
        """The inputs that hold the batch, where one graph takes any number of samples."""
        self._any = self._open()
        self._sized: OrderedDict[int, tuple[Graph, Any]] = OrderedDict()

    def run(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs as Tensors, which may still be computing. RuntimeFailure for inputs that do not fit."""
        graph, runner = self._any if self._any is not None else self._of_size(inputs)
        tensors = to_tensors(graph, inputs)
        if self._any is not None:
            self._check_sizes(graph, tensors)
        return self._engine.call(runner, graph, tensors)

    @cached_property
    def cell(self) -> Any:
        """As an ``nn.Cell``. Called, it takes what :meth:`run` takes; within a Cell that MindSpore compiles, any number
        of samples where one graph takes them all, else that of training."""
        from ..engine.cells import NetworkCell

        _, runner = self._any if self._any is not None else self._of_size(())
        return NetworkCell(runner.graph, runner.state, self.run)

    def _open(self) -> tuple[Graph, Any] | None:
        """One graph for any number of samples, or for inputs without a batch; None where there is none."""
        try:
            batch_inputs(self.evaluation.graph)
        except PassError:  # open already, or no input has a batch
            return self._runner(self.evaluation.graph)
        try:
            opened = self.evaluation.resized(None)
        except PassError:
            return None
        self._batched = opened.per_sample
        return self._runner(opened.graph)

    def _of_size(self, inputs: Sequence[Any]) -> tuple[Graph, Any]:
        graph = self.evaluation.graph
        size, batched = batch_inputs(graph)
        wanted = self._samples(graph, batched, inputs)
        if wanted is None:
            wanted = size
        if wanted not in self._sized:
            self._sized[wanted] = self._runner(self._resized(size, wanted))
            while len(self._sized) > _MOST_SIZES:
                self._sized.popitem(last=False)
        self._sized.move_to_end(wanted)
        return self._sized[wanted]

    def _samples(self, graph: Graph, batched: dict[str, int], inputs: Sequence[Any]) -> int | None:
        """How many samples the inputs hold; None where their shapes do not say, which :func:`.to_tensors` tells."""
        import numpy as np

        for value, given in zip(graph.inputs, inputs, strict=False):
            if value.name in batched:
                shape = tuple(given.shape) if hasattr(given, "shape") else np.shape(given)
                return int(shape[0]) if shape else None
        return None

    def _resized(self, size: int, wanted: int) -> Graph:
        try:
            return self.evaluation.resized(wanted).graph
        except PassError as error:
            raise RuntimeFailure(
                f"predict was given {counted(wanted, 'sample')} and takes {size} only: {error}"
            ) from error

    def _runner(self, graph: Graph) -> tuple[Graph, Any]:
        return graph, self._engine.runner_of(self.evaluation.program, graph)

    def _check_sizes(self, graph: Graph, tensors: Sequence[Any]) -> None:
        """Inputs that share the batch must have as many samples."""
        named = {value.name: tensor for value, tensor in zip(graph.inputs, tensors, strict=True)}
        sizes = {name: int(tensor.shape[0]) for name, tensor in named.items() if name in self._batched}
        if len(set(sizes.values())) > 1:
            shown = ", ".join(f"{name} {n}" for name, n in sizes.items())
            raise RuntimeFailure(f"the inputs hold different numbers of samples: {shown}.")


class Predictions:
    """The evaluation networks of a session, each made when it is first asked for. ``averaged``: they read the averages
    of weights in the place of the weights."""

    def __init__(self, engine: Engine, program: Program, *, averaged: bool = False):
        self._engine, self._program, self._averaged = engine, program, averaged
        self._made: dict[str | None, Prediction] = {}

    def of(self, result: str | None) -> Prediction:
        """The network up to the node ``result``; None: up to what the loss is taken of."""
        if result not in self._made:
            self._made[result] = Prediction(self._engine, self._program, result, averaged=self._averaged)
        return self._made[result]

    def arrays(self, inputs: Sequence[Any], result: str | None) -> tuple[Any, ...]:
        """The outputs as numpy arrays, bfloat16 as float32."""
        import mindspore
        import numpy as np

        found = self.of(result).run(inputs)
        wide = [v.astype(mindspore.float32) if v.dtype == mindspore.bfloat16 else v for v in found]
        return tuple(np.array(v.asnumpy()) for v in wide)  # asnumpy() may share the device's memory
