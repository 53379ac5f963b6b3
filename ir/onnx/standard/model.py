"""The network of a program as an ONNX model: its nodes by the rules, its state as initializers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...atomic import replacing_file
from ...data import to_numpy
from ...errors import Error, PassError
from ...evaluation import Evaluation, evaluation
from ...evaluation.outputs import ancestors, results_of
from ...forward_side import carried_operands
from ...program import Program, StateVariable
from ...types import DType, TensorType
from ...values import Value
from ...wording import counted, print_bytes
from . import elementwise, layers, shapes
from .writing import ELEMENT, Rule, Unsupported, Writing, shape_of

if TYPE_CHECKING:
    import numpy as np

RULES: dict[str, Rule] = {**elementwise.RULES, **layers.RULES, **shapes.RULES}
OPSET, IR_VERSION = 18, 9
LIMIT = 1_900_000_000
"""Bytes that one protobuf message holds, with room for the graph."""
_LISTED = 40


def export_onnx(
    path: Path, program: Program, values: Mapping[str, np.ndarray] | None = None, result: str | None = None,
    producer: str = "",
) -> Evaluation:  # fmt: skip
    """Writes the network of ``program``, up to the node ``result`` if given, as standard ONNX, and returns what was
    written. ``values``: the state, if not that of the program.

    Error, listing all at once, for primitives that have no standard operator. Nothing is written then.
    """
    network = evaluation(program, result)
    writing = Writing()
    _translate(network, writing, dict(values or {}))
    model = _assembled(network, writing, producer)
    _checked(model)
    with replacing_file(Path(path)) as stream:
        stream.write(model.SerializeToString())
    return network


def _translate(network: Evaluation, w: Writing, values: dict[str, Any]) -> None:
    """Writes what the results need."""
    graph = network.graph
    needed = ancestors([graph.result])
    for value in graph.inputs:
        w.define(value, w.unique.claim(value.name))
    for name in network.outputs:
        w.unique.claim(name)
    size = 0
    for name, state in graph.states.items():
        array = _value(name, network.program.state[name], values)
        size += array.nbytes
        w.define(state, w.constant(array, name))
    if size > LIMIT:
        raise Error(f"the weights take {print_bytes(size)}, more than one ONNX file holds ({print_bytes(LIMIT)})")
    unsupported: list[str] = []
    unknown: set[Value] = set()
    for node in graph:
        if node not in needed or (node is graph.result and node.op.name == "MakeTuple"):
            continue
        w.scope = node.scope.removeprefix("Default/")
        try:
            rule = RULES.get(node.op.name)
            if rule is None:
                raise Unsupported("no standard operator")
            if any(v in unknown for v in carried_operands(node)):
                unknown.add(node)
                continue
            w.define(node, rule(w, node))
        except Unsupported as error:
            unknown.add(node)
            unsupported.append(f"{node.op.name} %{node.name}: {error}")
    if unsupported:
        more = f"\n  … and {len(unsupported) - _LISTED} more" if len(unsupported) > _LISTED else ""
        raise PassError(
            f"{counted(len(unsupported), 'node')} of the network cannot be written as standard ONNX:\n  "
            + "\n  ".join(unsupported[:_LISTED])
            + more
            + "\n  Name a node before them as the result (boost-inspect --result), or write the graph for viewers "
            "(boost-inspect --format onnx)."
        )


def _value(name: str, variable: StateVariable, values: Mapping[str, np.ndarray]) -> np.ndarray:
    if variable.dtype not in ELEMENT or variable.dtype is DType.BFLOAT16:
        raise PassError(f"state '{name}' is {variable.type}, which the exported model could not hold")
    if not values:
        return to_numpy(variable.type, variable.data)
    array = values.get(name)
    if array is None or array.shape != variable.shape or array.dtype != variable.dtype.value:
        held = "lacks it" if array is None else f"has {array.dtype}{list(array.shape)} for it"
        raise PassError(f"state '{name}' is {variable.type}, and the given state {held}")
    return array


def _assembled(network: Evaluation, w: Writing, producer: str) -> Any:
    from onnx import ModelProto, helper

    outputs = []
    for name, value in results_of(network.graph).items():
        w.nodes.append(helper.make_node("Identity", [w.name(value)], [name], name=f"{name}/Identity"))
        outputs.append(_info(name, value))
    inputs = [_info(w.name(v), v) for v in network.graph.inputs if v.uses]
    graph = helper.make_graph(w.nodes, network.program.name, inputs, outputs, initializer=w.initializers)
    model: ModelProto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION,
        producer_name="boost-compile", producer_version=producer,
    )  # fmt: skip
    return model


def _info(name: str, value: Value) -> Any:
    from onnx import helper

    if not isinstance(value.type, TensorType):
        raise PassError(f"%{value.name} is {value.type}: an ONNX model takes and gives tensors")
    shape = [d if d >= 0 else f"{name}_{i}" for i, d in enumerate(shape_of(value))]
    return helper.make_tensor_value_info(name, ELEMENT[value.type.dtype], shape)


def _checked(model: Any) -> None:
    """A model that the checker refuses is a bug of ours, and is not written."""
    from onnx import checker

    checker.check_model(model, full_check=True)
