"""The way back: a program in half precision computes in float32, and its casts between the two are gone."""

from __future__ import annotations

from dataclasses import replace

from ...ir.core.attributes import TensorValue
from ...ir.core.data import BytesData, Data, numbers
from ...ir.core.graph import Constant, Graph, Node
from ...ir.core.primitives.calls import CODES, names_type
from ...ir.core.program import Program
from ...ir.core.types import DType, TensorType, TupleType, Type
from ...ir.rewrite.effects.editing import Effects

HALVES = (DType.FLOAT16, DType.BFLOAT16)
_CODES = tuple(CODES[dtype] for dtype in HALVES)


def is_half(type_: Type) -> bool:
    """Whether it is the type of a tensor in half precision."""
    return isinstance(type_, TensorType) and type_.dtype in HALVES


def widened(type_: Type) -> Type:
    """The type with float32 for half precision, in tuples too."""
    if isinstance(type_, TupleType):
        return replace(type_, elements=tuple(map(widened, type_.elements)))
    if isinstance(type_, TensorType) and type_.dtype in HALVES:
        return replace(type_, dtype=DType.FLOAT32)
    return type_


def widen(program: Program) -> int:
    """Makes float32 of all half precision in a program: inputs, state with its values, constants, what nodes compute.
    Returns how many nodes computed in half precision. No value changes: float32 holds all of theirs. Linear in nodes
    and bytes."""
    for variable in program.state.values():
        if is_half(variable.type):
            variable.data = _widened_data(variable.type, variable.data)
            variable.type = replace(variable.type, dtype=DType.FLOAT32)
    return sum(_widen(graph) for graph in program.graphs.values())


def _widen(main: Graph) -> int:
    effects = Effects(main)
    count = 0
    for graph in main.all_graphs():
        for value in (*graph.inputs, *graph.states.values()):
            value.type = widened(value.type)
        for node in list(graph):
            count += widened(node.type) != node.type and node.op.name != "Cast"
            node.type = widened(node.type)
            for i, operand in enumerate(node.operands):
                if isinstance(operand, Constant):
                    node.set_operand(i, _constant(graph, node, i, operand))
        for node in list(graph):
            if node.op.name == "Cast" and node.operand(0).type == node.type:
                node.replace_uses(node.operand(0))
                graph.erase(node)
        if isinstance(graph.result, Constant):
            graph.result = _tensor(graph, graph.result)
    effects.commit()
    return count


def _constant(graph: Graph, node: Node, i: int, constant: Constant) -> Constant:
    """What stands for a constant operand: its values in float32, or the number of that type."""
    if names_type(node.op.name, i) and constant.value in _CODES:
        return graph.constant(CODES[DType.FLOAT32])
    return _tensor(graph, constant)


def _tensor(graph: Graph, constant: Constant) -> Constant:
    value = constant.value
    if not isinstance(value, TensorValue) or not is_half(value.type):
        return constant
    type_ = widened(value.type)
    assert isinstance(type_, TensorType)
    return graph.constant(TensorValue(type_, _widened_data(value.type, value.data)))


def _widened_data(type_: TensorType, data: Data) -> Data:
    return BytesData(numbers(type_, data).astype("float32").tobytes())
