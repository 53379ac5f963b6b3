"""The gradients of a program's loss by MindSpore's autodiff alone: its forward part is cut out up to the loss, and
MindSpore differentiates that. Nothing here looks for gradients in the program."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from ...ir.analysis.training.network import FORWARD, network_parts
from ...ir.core.attributes import scalar_tensor
from ...ir.core.errors import Error
from ...ir.core.program import Program
from ...ir.core.types import TensorType
from ...ir.formats.mindir.writer import write_mindir
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.evaluation.outputs import loss_of
from ...ir.rewrite.evaluation.pruning import prune
from ...ir.rewrite.settle_results import settle_results
from ...runtime.data.inputs import to_tensors
from ...runtime.differentiation.differentiate import differentiate
from ...runtime.differentiation.export import first_line
from ...runtime.engine.scratch import scratch_folder
from .changes import totals
from .reference import Batch, Reference, Values


class NotDifferentiated(Exception):
    """MindSpore does not differentiate the forward part of a file; says why."""


def loss_program(program: Program, scale: float = 1.0) -> Program:
    """The forward part up to the loss, with what it writes; the loss times ``scale``. Error where it is not found."""
    program = program.copy()
    (graph,) = program.graphs.values()
    settle_results(graph, network_parts(graph))
    parts, loss = network_parts(graph), loss_of(graph)
    if not isinstance(loss.type, TensorType) or loss.type.shape not in ((), (1,)):
        raise NotDifferentiated("the loss is not one number")
    fx = Effects(graph)
    fx.drop([e for e in fx.writes() if parts.get(e.node) != FORWARD])
    graph.outputs = ("loss",)
    if scale != 1:
        loss = graph.create("Mul", [loss, graph.constant(scalar_tensor(loss.type.dtype.value, scale))])
    fx.commit(loss)
    prune(graph)
    program.drop_state(graph.forget_unused_states())
    return program


class LossGradients:
    """By weight, of as many times the loss; compiled once. NotDifferentiated where MindSpore does not do it."""

    def __init__(self, program: Program, device: str, scale: float = 1.0):
        self._device = device
        try:
            self._forward = loss_program(program, scale)
        except Error as error:
            why = f"the file's loss cannot be cut out to be differentiated: {first_line(error)}"
            raise NotDifferentiated(why) from error
        floats = [n for n, v in self._forward.state.items() if v.role == "weight" and v.dtype.value in _FLOATS]
        if not floats:
            raise NotDifferentiated("the loss depends on no weight of float32 or float16")
        self._weights = floats

    def of(self, state: Mapping[str, np.ndarray], batch: Batch) -> Values:
        """Those that are dense."""
        try:
            return self._of_loaded(state, batch)
        except Exception as loaded:  # whatever MindSpore raises: its autodiff takes some primitives only from Python
            try:
                return self._of_cells(state, batch)
            except Exception:
                reason = f"MindSpore does not differentiate the file's forward part: {first_line(loaded)}"
                raise NotDifferentiated(reason) from loaded

    def _of_loaded(self, state: Mapping[str, np.ndarray], batch: Batch) -> Values:
        import mindspore

        cell, held = self._loaded
        for name, parameter in held.items():
            parameter.set_data(mindspore.Tensor(state[name]))
        ((_, graph),) = self._forward.graphs.items()
        with scratch_folder() as folder, _dumps_in(folder):
            found = cell(*to_tensors(graph, batch))
        # A sparse one is a tuple of rows and their places.
        return {n: g.asnumpy() for n, g in zip(self._weights, found, strict=True) if isinstance(g, mindspore.Tensor)}

    @cached_property
    def _loaded(self) -> tuple[Any, dict[str, Any]]:
        """The graph as MindSpore loads it, and its Parameters."""
        import mindspore

        from .autodiff_cells import Gradients, Loss

        ((_, graph),) = self._forward.graphs.items()
        with scratch_folder() as folder:
            path = folder / "loss.mindir"
            header = {"model_version": mindspore.__version__, **self._forward.metadata}
            write_mindir(path, graph, self._forward.state, header, stateless=True)
            loaded = mindspore.load(str(path))
        held = {n: mindspore.Parameter(mindspore.Tensor(self._forward.state[n].initial), name=n) for n in graph.states}
        return Gradients(Loss(loaded, list(held.values())), [held[n] for n in self._weights]), held

    def _of_cells(self, state: Mapping[str, np.ndarray], batch: Batch) -> Values:
        """Of a Cell that is written from the graph."""
        start = {n: state.get(n, v) for n, v in self._cells.initial.items()}
        return totals(self._cells.probe, self._cells.micro(start, batch).gradients)

    @cached_property
    def _cells(self) -> Reference:
        return Reference(differentiate(self._forward, "sgd{lr=1.0}", train=self._weights), self._device)


_FLOATS = ("float32", "float16")


@contextmanager
def _dumps_in(folder: object) -> Iterator[None]:
    """MindSpore writes what it failed on into the folder where the user works, unless it is told another."""
    before = os.environ.get("MS_OM_PATH")
    os.environ["MS_OM_PATH"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["MS_OM_PATH"]
        else:
            os.environ["MS_OM_PATH"] = before
