"""A forward program made a training program: a Cell is written from it, MindSpore differentiates that Cell under one of
its own optimizers, and the training graph that it exports is read."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...ir.analysis.effects.state_access import summarize
from ...ir.core.errors import OptionError, PassError, RuntimeFailure, nearest
from ...ir.core.graph import Graph
from ...ir.core.interface import Interface, interface_of, note_interface
from ...ir.core.program import Program
from ...ir.core.report import PassResult
from ...ir.core.spec import Spec, parse_spec
from ...ir.core.types import DType, TensorType, TupleType
from ...ir.core.walk import result_value
from ...ir.formats.python.decompile import Decompiled, decompile, only_graph
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.evaluation.outputs import results_of
from ..engine.environment import prepare_environment
from ..engine.scratch import scratch_folder
from .catalogue import check_optimizer, find_loss, label_type, make_loss, make_optimizer
from .export import first_line, read_export
from .trainable import trained_names
from .training_mode import set_training_mode

_serial = itertools.count()

OWN_BACKWARD = "that of each construct: a forward file holds no bprop; where a Cell has one, export the training cell"
"""What a file of MindSpore cannot say of itself: the report of each derivative says it."""


def differentiate(
    program: Program,
    optimizer: str,
    loss: str | None = None,
    train: Sequence[str] = (),
    freeze: Sequence[str] = (),
    *,
    training_mode: bool = False,
    head: str | None = None,
) -> Program:
    """Makes the training program of a forward ``program``: one graph, ``step``, as if a training cell had been
    exported.

    ``optimizer`` and ``loss`` name those of ``mindspore.nn`` with options: ``momentum{lr=0.01,momentum=0.9}``,
    ``softmax-cross-entropy``. Without ``loss`` the graph must return its loss. ``train`` and ``freeze`` are globs of
    names of state. ``training_mode`` makes the BatchNorms of a graph that was exported for inference learn their
    statistics. ``head`` names the result that is trained, of a graph that returns several. The last of ``reports`` says
    which state is trained. OptionError for names and options, PassError for a graph that cannot be differentiated.
    """
    updating = parse_spec(optimizer, "optimizer")
    check_optimizer(updating)
    judging = None if loss is None else parse_spec(loss, "loss")
    if judging is not None:
        find_loss(judging)
    _check_forward(program)
    program = program.copy()
    graph = only_graph(program)
    report = PassResult("differentiate", {"optimizer": optimizer, "loss": loss})
    if not str(program.source.get("file", "")).endswith(".onnx"):
        report.statistics["derivative"] = OWN_BACKWARD
    if head is not None:
        _keep_head(program, graph, head, report)
    set_training_mode(graph, training_mode, report)
    inputs = [(v.name, _input_type(graph, v.name, v.type)) for v in graph.inputs]
    if judging is not None:
        inputs.append(("label", label_type(judging, _prediction(graph))))
    else:
        _check_loss(graph)
    trained = trained_names(program, graph, train, freeze, report)
    written = decompile(program, set(trained))
    prepare_environment(program.graphs.values())
    with scratch_folder() as folder:
        path = _export(written, folder, updating, judging, [type_ for _, type_ in inputs], program.name)
        made = read_export(path)
    step = made.graphs["step"]
    renamed = next((n for n in trained if n not in made.state), None)
    if renamed is not None:
        raise RuntimeFailure(
            f"program '{program.name}': MindSpore does not keep the name of state {renamed!r}; rename it"
        )
    for value, (name, _) in zip(step.inputs, inputs, strict=True):
        value.name = name
    made.name, made.target, made.source = program.name, program.target, dict(program.source)
    made.reports = [*program.reports, report]
    noted = interface_of(program)
    if noted.outputs:  # of a forward part that ends in a loss, the outputs are within, without a name
        note_interface(made, Interface(noted.batch, graph.outputs if judging is not None else ()))
    return made


def _keep_head(program: Program, graph: Graph, head: str, report: PassResult) -> None:
    """Makes a graph return one of its results alone; state that served the others alone goes."""
    results = results_of(graph)
    if head not in results:
        raise OptionError(f"graph '{graph.name}' has no result '{head}'{nearest(head, list(results))}")
    Effects(graph).commit(results[head])
    graph.outputs = (head,)
    for name in program.drop_state(graph.forget_unused_states()):
        report.miss(name, f"dropped: it serves other results than {head}")


def _check_forward(program: Program) -> None:
    from ...ir.analysis.training.network import BACKWARD, network_parts

    if any(BACKWARD in network_parts(graph, summarize(graph)).values() for graph in program.graphs.values()):
        raise PassError(f"program '{program.name}' is a training graph already: it is compiled without an optimizer")


def _input_type(graph: Graph, name: str, type_: Any) -> TensorType:
    if not isinstance(type_, TensorType):
        raise PassError(f"graph '{graph.name}': input '{name}' is {type_}; a training program takes tensors only")
    return type_


def _prediction(graph: Graph) -> TensorType:
    value = result_value(graph)
    if isinstance(value.type, TensorType) and value.type.shape == ():
        raise PassError(
            f"graph '{graph.name}' returns one number ({value.type}), which is a loss already: a loss takes a row for "
            "each sample.",
            python="Leave out loss: then that number is the loss.",
            command="boost-compile without --loss takes that number for the loss.",
        )
    if isinstance(value.type, TupleType):
        names = list(results_of(graph))
        raise PassError(
            f"graph '{graph.name}' returns several results ({', '.join(names)}); a loss takes one.",
            python=f"Say which: head={names[0]!r}",
            command=f"Say which: boost-compile --head {names[0]}",
        )
    if not isinstance(value.type, TensorType) or not value.type.dtype.is_float:
        raise PassError(
            f"graph '{graph.name}' returns {value.type}; a loss takes one tensor of floating-point numbers. Export the "
            "network so that it returns its prediction alone, or returns its loss."
        )
    return value.type


def _check_loss(graph: Graph) -> None:
    type_ = result_value(graph).type
    if not isinstance(type_, TensorType) or not type_.dtype.is_float or type_.shape not in ((), (1,)):
        raise OptionError(
            f"graph '{graph.name}' returns {type_}, which is no loss.",
            python="Name one: loss='softmax-cross-entropy'",
            command="Name one: boost-compile --loss softmax-cross-entropy",
        )


def _export(
    written: Decompiled, folder: Path, updating: Spec, judging: Spec | None, inputs: list[TensorType], name: str
) -> Path:
    import mindspore
    from mindspore import nn

    from .cells import LossOfLastInput

    with _imported(written.write(folder)) as module:
        try:
            network = module.load()
        except Exception as error:
            raise RuntimeFailure(f"program '{name}': MindSpore cannot build it: {first_line(error)}") from error
        if judging is not None:
            network = LossOfLastInput(network, make_loss(judging))
        optimizer = make_optimizer(updating, network.trainable_params())
        cell = nn.TrainOneStepCell(network, optimizer).set_train()
        path = folder / "training.mindir"
        try:
            mindspore.export(cell, *map(_tensor, inputs), file_name=str(path), file_format="MINDIR")
        except Exception as error:
            raise RuntimeFailure(f"program '{name}': MindSpore cannot differentiate it: {first_line(error)}") from error
    return path


@contextmanager
def _imported(path: Path) -> Iterator[Any]:
    """The module in a file, known by a name of its own while MindSpore parses its source."""
    name = f"boost_compile_network_{next(_serial)}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[name]


def _tensor(type_: TensorType) -> Any:
    import mindspore
    import numpy as np

    dtype = getattr(mindspore, "bool_" if type_.dtype is DType.BOOL else type_.dtype.value)
    if type_.is_static:
        return mindspore.Tensor(np.zeros(type_.shape), dtype)
    return mindspore.Tensor(shape=[None if d < 0 else d for d in type_.shape], dtype=dtype)
