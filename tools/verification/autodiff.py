"""The gradients of a program's loss by MindSpore's autodiff alone: its forward part is cut out up to the loss, and
MindSpore differentiates that. Nothing here looks for gradients in the program."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from ...ir.analysis.training.network import FORWARD, network_parts
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
from .context import NotApplicable
from .reference import Batch, Reference, Values


def loss_program(program: Program) -> Program:
    """The forward part up to the loss, with what it writes. Error where the loss is not found, or is not a number."""
    program = program.copy()
    (graph,) = program.graphs.values()
    settle_results(graph, network_parts(graph))
    parts, loss = network_parts(graph), loss_of(graph)
    if not isinstance(loss.type, TensorType) or loss.type.shape not in ((), (1,)):
        raise NotApplicable("the loss is not one number")
    fx = Effects(graph)
    fx.drop([e for e in fx.writes() if parts.get(e.node) != FORWARD])
    graph.outputs = ("loss",)
    fx.commit(loss)
    prune(graph)
    program.drop_state(graph.forget_unused_states())
    return program


def gradients_of_loss(program: Program, state: Mapping[str, np.ndarray], batch: Batch, device: str) -> Values:
    """By weight, for those of float32 that the loss depends on and whose gradients are dense. NotApplicable, with the
    reason, where MindSpore does not differentiate the forward part."""
    try:
        forward = loss_program(program)
    except Error as error:
        raise NotApplicable(f"the file's loss cannot be cut out to be differentiated: {first_line(error)}") from error
    weights = [n for n, v in forward.state.items() if v.role == "weight" and v.dtype.value == "float32"]
    if not weights:
        raise NotApplicable("the loss depends on no weight of float32")
    try:
        return _of_loaded(forward, weights, state, batch, device)
    except Exception as loaded:  # whatever MindSpore raises: its autodiff takes some primitives only from Python
        try:
            return _of_cells(forward, weights, state, batch, device)
        except Exception:
            reason = f"MindSpore does not differentiate the file's forward part: {first_line(loaded)}"
            raise NotApplicable(reason) from loaded


def _of_loaded(
    forward: Program, weights: list[str], state: Mapping[str, np.ndarray], batch: Batch, device: str
) -> Values:
    """Of the graph as MindSpore loads it."""
    import mindspore

    from .autodiff_cells import Gradients, Loss

    ((_, graph),) = forward.graphs.items()
    with scratch_folder() as folder, _dumps_in(folder):
        path = folder / "loss.mindir"
        header = {"model_version": mindspore.__version__, **forward.metadata}
        write_mindir(path, graph, forward.state, header, stateless=True)
        held = {n: mindspore.Parameter(mindspore.Tensor(state[n]), name=n) for n in graph.states}
        cell = Gradients(Loss(mindspore.load(str(path)), list(held.values())), [held[n] for n in weights])
        found = cell(*to_tensors(graph, batch))
        # A sparse one is a tuple of rows and their places.
        return {n: g.asnumpy() for n, g in zip(weights, found, strict=True) if isinstance(g, mindspore.Tensor)}


def _of_cells(
    forward: Program, weights: list[str], state: Mapping[str, np.ndarray], batch: Batch, device: str
) -> Values:
    """Of a Cell that is written from the graph."""
    made = Reference(differentiate(forward, "sgd{lr=1.0}", train=weights), device)
    start = {n: state.get(n, v) for n, v in made.initial.items()}
    return totals(made.probe, made.micro(start, batch).gradients)


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
