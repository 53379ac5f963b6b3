"""The network of a program as an ONNX model: its nodes by the rules, its state as initializers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...atomic import replacing_file
from ...data import to_numpy
from ...errors import Error, PassError
from ...forward_side import carried_operands
from ...program import Program, StateVariable
from ...types import DType, TensorType
from ...values import Node, Value
from . import elementwise, layers, shapes
from .network import Network, network_of
from .writing import ELEMENT, Rule, Unsupported, Writing, shape_of

if TYPE_CHECKING:
    import numpy as np

RULES: dict[str, Rule] = {**elementwise.RULES, **layers.RULES, **shapes.RULES}
OPSET, IR_VERSION = 18, 9
LIMIT = 1_900_000_000
"""Bytes that one protobuf message holds, with room for the graph."""
_LISTED = 40


@dataclass(frozen=True)
class Exported:
    """What stands in a model that was written: names of inputs, results and state; ``left_out``: inputs of the training
    graph that the network does not take; ``ends_at``: the node that is its result."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    state: tuple[str, ...]
    left_out: tuple[str, ...]
    ends_at: str
    is_whole: bool

    def __str__(self) -> str:
        what = "the whole graph" if self.is_whole else f"the network, as far as {self.ends_at}"
        text = f"exported {what}: {', '.join(self.inputs)} -> {', '.join(self.outputs)}, {len(self.state)} weights"
        text += f"; without {', '.join(self.left_out)}" if self.left_out else ""
        return text + (
            "" if self.is_whole else "; without loss, backward part and optimizer"
        )  # fmt: skip


def export_onnx(
    path: Path, program: Program, values: Mapping[str, np.ndarray] | None = None, node: str | None = None,
    producer: str = "",
) -> Exported:  # fmt: skip
    """Writes the network of ``program`` as standard ONNX. ``values``: its state, if not that of the program; ``node``:
    where the network ends, if not where :func:`.network.network_of` finds it.

    Error, listing all at once, for primitives that have no standard operator. Nothing is written then.
    """
    network = network_of(program, node)
    writing = Writing()
    states = _translate(program, network, writing, dict(values or {}))
    model = _assembled(program, network, writing, producer)
    _checked(model)
    with replacing_file(Path(path)) as stream:
        stream.write(model.SerializeToString())
    inputs = tuple(info.name for info in model.graph.input)
    ends = ", ".join(_place(v) for v in network.results.values())
    return Exported(
        inputs, tuple(network.results), tuple(states),
        tuple(v.name for v in network.graph.inputs if v.name not in inputs), ends, network.is_whole,
    )  # fmt: skip


def _place(value: Value) -> str:
    scope = value.scope if isinstance(value, Node) else ""
    return f"%{value.name} ({scope})" if scope else f"%{value.name}"


def _needed(network: Network) -> set[Value]:
    found: set[Value] = set(network.results.values())
    stack = list(found)
    while stack:
        here = stack.pop()
        for operand in carried_operands(here) if isinstance(here, Node) else ():
            if operand not in found:
                found.add(operand)
                stack.append(operand)
    return found


def _translate(program: Program, network: Network, w: Writing, values: dict[str, Any]) -> list[str]:
    """Writes what the results need; the names of the state."""
    needed = _needed(network)
    states = []
    for value in network.graph.inputs:
        w.define(value, w.unique.claim(value.name))
    for name in network.results:
        w.unique.claim(name)
    size = 0
    for name, state in network.graph.states.items():
        if state in needed:
            variable = program.state[name]
            array = _value(name, variable, values)
            size += array.nbytes
            w.define(state, w.constant(array, name))
            states.append(name)
    if size > LIMIT:
        raise Error(f"{size:,} bytes of weights are more than one ONNX file holds ({LIMIT:,})")
    unsupported: list[str] = []
    unknown: set[Value] = set()
    for node in network.graph:
        if node not in needed or node.op.name == "UpdateState":
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
            f"{len(unsupported)} nodes of the network cannot be written as standard ONNX:\n  "
            + "\n  ".join(unsupported[:_LISTED])
            + more
            + "\n  Name a node before them as the result (boost-inspect --result), or write the graph for viewers "
            "(boost-inspect --format onnx)."
        )
    return states


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


def _assembled(program: Program, network: Network, w: Writing, producer: str) -> Any:
    from onnx import ModelProto, helper

    needed = _needed(network)
    outputs = []
    for name, value in network.results.items():
        w.nodes.append(helper.make_node("Identity", [w.name(value)], [name], name=f"{name}/Identity"))
        outputs.append(_info(name, value))
    inputs = [_info(w.name(v), v) for v in network.graph.inputs if v in needed]
    graph = helper.make_graph(w.nodes, program.name, inputs, outputs, initializer=w.initializers)
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
