"""The sizes that a program has."""

from __future__ import annotations

from boost_compile.ir.core.attributes import bits
from boost_compile.ir.core.graph import Constant, Graph
from boost_compile.ir.core.types import TensorType, TupleType, Type


def sizes(graph: Graph) -> list[object]:
    """Of each node: what it is, its type but for names, and its constant operands."""
    found: list[object] = [shapes(v.type) for v in graph.inputs]
    for part in graph.all_graphs():
        for node in part:
            constants = [bits(v.value) for v in node.operands if isinstance(v, Constant)]
            found.append((node.op.name, shapes(node.type), constants))
    return found


def shapes(type_: Type) -> object:
    if isinstance(type_, TupleType):
        return tuple(map(shapes, type_.elements))
    return (type_.dtype, type_.shape) if isinstance(type_, TensorType) else None
