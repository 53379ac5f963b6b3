"""Writes the network of a program as a model of standard ONNX operators, which any ONNX runtime executes: its nodes by
the table, its state as initializers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...core.data import to_numpy
from ...core.errors import Error, PassError
from ...core.graph import Value
from ...core.interface import interface_of
from ...core.program import StateVariable
from ...core.types import DType, TensorType
from ...core.walk import carried_operands
from ...core.wording import counted, print_bytes
from ...files.atomic import replacing_file
from ...rewrite.batch_size.resize import batch_inputs
from ...rewrite.evaluation import Evaluation
from ...rewrite.evaluation.outputs import ancestors, results_of
from .operators import OPSET, Unsupported, listed, shape_of
from .table import WRITE
from .writing import ELEMENT, Writing

IR_VERSION = 9
LIMIT = 1_900_000_000
"""Bytes that one protobuf message holds, with room for the graph."""


def export_onnx(path: Path, network: Evaluation, producer: str = "") -> Evaluation:
    """Writes ``network`` as standard ONNX, and returns it as it was written: with an open batch, if it came from a
    model with one, every node allows that, and nobody asked for another size.

    Error, listing all at once, for primitives that have no standard operator. Nothing is written then.
    """
    from onnx import checker

    written = _as_it_came(network)
    try:
        model = _model(written, producer)
    except PassError as error:
        if written is network:
            raise
        written = _fixed(network, error)
        model = _model(written, producer)
    checker.check_model(model, full_check=True)  # what it refuses is a bug of ours, and is not written
    with replacing_file(Path(path)) as stream:
        stream.write(model.SerializeToString())
    return written


def _as_it_came(network: Evaluation) -> Evaluation:
    opened = interface_of(network.program).batch
    fixed = [v for v in network.graph.inputs if v.name in opened and min(shape_of(v), default=0) >= 0]
    if network.batch or not fixed:
        return network
    first = opened[fixed[0].name]
    try:
        return network.resized(None, [v.name for v in fixed if opened[v.name] == first], runs=False)
    except PassError as error:
        return _fixed(network, error)


def _fixed(network: Evaluation, error: PassError) -> Evaluation:
    """As it is, and why it does not take any number of samples."""
    size, _ = batch_inputs(network.graph)
    reasons = error.message.splitlines()
    return replace(network, batch=f"{counted(size, 'sample')} only: {(reasons[1:] or reasons)[0].strip()}")


def _model(network: Evaluation, producer: str) -> Any:
    """A model of what the results need."""
    w, graph = Writing(), network.graph
    needed = ancestors([graph.result])
    for value in graph.inputs:
        w.define(value, w.unique.claim(value.name))
    for name in network.outputs:
        w.unique.claim(name)
    arrays = {name: _value(network.program.state[name]) for name in graph.states}
    size = sum(array.nbytes for array in arrays.values())
    if size > LIMIT:
        raise Error(f"the weights take {print_bytes(size)}, more than one ONNX file holds ({print_bytes(LIMIT)})")
    for name, state in graph.states.items():
        w.define(state, w.constant(arrays[name], name))
    unsupported: list[str] = []
    unknown: set[Value] = set()
    for node in graph:
        if node not in needed or (node is graph.result and node.op.name == "MakeTuple"):
            continue
        w.scope = node.scope.removeprefix("Default/")
        try:
            if node.op.name not in WRITE:
                raise Unsupported("no standard operator")
            if unknown.intersection(carried_operands(node)):
                unknown.add(node)
            else:
                w.define(node, WRITE[node.op.name](w, node))
        except Unsupported as error:
            unknown.add(node)
            unsupported.append(f"{node.op.name} %{node.name}: {error}")
    if unsupported:
        raise PassError(
            f"{counted(len(unsupported), 'node')} of the network cannot be written as standard ONNX:"
            f"{listed(unsupported)}\n"
            "  Name a node before them as the result (boost-inspect --result)."
        )
    return _assembled(network, w, producer)


def _value(variable: StateVariable) -> np.ndarray:
    if variable.dtype not in ELEMENT or variable.dtype is DType.BFLOAT16:
        raise PassError(f"state '{variable.name}' is {variable.type}, which the exported model could not hold")
    return to_numpy(variable.type, variable.data)


def _assembled(network: Evaluation, w: Writing, producer: str) -> Any:
    from onnx import helper

    names = interface_of(network.program).batch
    batch = next((names[v.name] for v in network.graph.inputs if v.name in names), "batch")
    outputs = []
    for name, value in results_of(network.graph).items():
        w.nodes.append(helper.make_node("Identity", [w.name(value)], [name], name=f"{name}/Identity"))
        outputs.append(_info(name, value, batch if name in network.per_sample else ""))
    inputs = [_info(w.name(v), v, names.get(v.name, batch)) for v in network.graph.inputs if v.uses]
    graph = helper.make_graph(w.nodes, network.program.name, inputs, outputs, initializer=w.initializers)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION,
        producer_name="boost-compile", producer_version=producer,
    )  # fmt: skip


def _info(name: str, value: Value, batch: str) -> Any:
    """An input or output. Open sizes have names of their own, but for the first, if that is the ``batch``."""
    from onnx import helper

    if not isinstance(value.type, TensorType):
        raise PassError(f"%{value.name} is {value.type}: an ONNX model takes and gives tensors")
    shape = [d if d >= 0 else batch if i == 0 and batch else f"{name}_{i}" for i, d in enumerate(shape_of(value))]
    return helper.make_tensor_value_info(name, ELEMENT[value.type.dtype], shape)
