"""On CPU: float32 matrices and filters are tested for infinities and NaN by their product with a vector of zeros.

Zero times a finite number is zero, times an infinity or NaN it is NaN: the product, one element a row, is finite where
the row is. MindSpore's CPU kernels of IsFinite and ReduceAll take 7 ns an element, its matrix product 0.3
(docs/benchmarks.md).
"""

from __future__ import annotations

from math import prod

from ...ir.builders.nodes import Nodes
from ...ir.builders.reduce import BIG
from ...ir.core.attributes import TensorValue
from ...ir.core.data import ZeroData
from ...ir.core.graph import Graph, Node, Value, tensor_type
from ...ir.core.primitives import CPU
from ...ir.core.types import DType, TensorType
from ...ir.core.wording import counted
from .context import Context
from .measures import is_finite_test


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and any(_is_test(node) for part in graph.all_graphs() for node in part)


def run(graph: Graph, context: Context) -> str:
    tests = [(part, node) for part in graph.all_graphs() for node in part if _is_test(node)]
    for part, node in tests:
        _shorten(part, node)
    graph.sort()
    return f"{counted(len(tests), 'finite test')} by matrix products"


def _is_test(node: Node) -> bool:
    """Whether a node is IsFinite of a big tensor, all of whose answers are joined into one."""
    return is_finite_test(node) and tensor_type(node.operand(0)).size >= BIG


def _shorten(graph: Graph, node: Node) -> None:
    value = next(filter(_is_matrix, node.operand(0).users), node.operand(0))
    shape = tensor_type(value).shape
    rows, columns = (shape[0], prod(shape[1:])) if len(shape) > 1 else (1, shape[0])
    n = Nodes(graph, "")
    with graph.inserting_before(node):
        if not _is_matrix(value):
            value = n.reshape(value, rows, columns)
        # The longer side is summed up, so that few answers remain.
        longer = rows > columns
        zeros = _zeros(graph, (1, rows) if longer else (columns, 1))
        answers = n.op("IsFinite", n.matmul(zeros, value) if longer else n.matmul(value, zeros))
    graph.substitute(node, answers)


def _is_matrix(value: Value) -> bool:
    """Whether a value is another's elements as a matrix already, as sums of rows take them."""
    return isinstance(value, Node) and value.op.name == "Reshape" and len(tensor_type(value).shape) == 2


def _zeros(graph: Graph, shape: tuple[int, int]) -> Value:
    type_ = TensorType(DType.FLOAT32, shape)
    return graph.constant(TensorValue(type_, ZeroData(type_.nbytes)))
