"""On CPU: big float32 tensors are tested for infinities and NaN by their products with vectors of zeros.

Zero times a finite number is zero, times an infinity or NaN it is NaN. So the product of a matrix with zeros on both
sides is one number, which is finite where all elements are, and so is the sum of these numbers for all tensors that are
asked for together. MindSpore's CPU kernels of IsFinite and ReduceAll take 7 ns an element, its matrix product 0.3
(docs/benchmarks.md), and ReduceAll some 10 µs for the smallest tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from ...ir.builders.nodes import Nodes
from ...ir.builders.reduce import BIG, LONGEST_ROW
from ...ir.core.attributes import TensorValue
from ...ir.core.data import ZeroData
from ...ir.core.graph import Graph, Node, Value, tensor_type
from ...ir.core.primitives import CPU
from ...ir.core.types import DType, TensorType
from ...ir.core.wording import counted
from .context import Context
from .measures import ask_once, conjunctions_of, is_finite_test


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and any(_is_test(node) for part in graph.all_graphs() for node in part)


def run(graph: Graph, context: Context) -> str:
    tests = 0
    for part in graph.all_graphs():
        found = [node for node in part if _is_test(node)]
        wholes = conjunctions_of(part)
        together: dict[Node, list[Node]] = {}
        for answer in (answer for node in found for answer in node.uses):
            together.setdefault(wholes[answer], []).append(answer)
        products: dict[Value, Value] = {node: _product(part, node) for node in found}
        for whole, answers in together.items():
            one = _are_zero(part, list(dict.fromkeys(products[answer.operand(0)] for answer in answers)))
            ask_once(part, whole, wholes, dict.fromkeys(answers, one))
        part.erase_all([*(answer for answers in together.values() for answer in answers), *found])
        part.sort()
        tests += len(found)
    return f"{counted(tests, 'finite test')} by matrix products"


def _is_test(node: Node) -> bool:
    """Whether a node is IsFinite of a big tensor, all of whose answers are joined into one."""
    return is_finite_test(node) and tensor_type(node.operand(0)).size >= BIG


def _product(graph: Graph, test: Node) -> Value:
    """What a test asks of, as a matrix with vectors of zeros on both sides: one number."""
    value = next(filter(_is_matrix, test.operand(0).users), test.operand(0))
    shape = tensor_type(value).shape
    columns = prod(shape[1:]) if len(shape) > 1 else gcd(shape[0], LONGEST_ROW)
    rows = prod(shape) // columns
    n = Nodes(graph, "")
    if not _is_matrix(value):
        value = n.reshape(value, rows, columns)
    # The longer side is summed up first, so that few elements remain.
    if rows > columns:
        value, rows = n.matmul(_zeros(graph, (1, rows)), value), 1
    if columns > 1:
        value = n.matmul(value, _zeros(graph, (columns, 1)))
    if rows > 1:
        value = n.matmul(_zeros(graph, (1, rows)), value)
    return n.reshape(value)


def _are_zero(graph: Graph, products: Sequence[Value]) -> Value:
    """Whether all of these numbers are; the others are NaN."""
    n = Nodes(graph, "")
    return n.op("IsFinite", products[0] if len(products) == 1 else n.op("AddN", n.op("MakeTuple", *products)))


def _is_matrix(value: Value) -> bool:
    """Whether a value is another's elements as a matrix already, as sums of rows take them."""
    if not (isinstance(value, Node) and value.op.name == "Reshape"):
        return False
    shape = tensor_type(value).shape
    return len(shape) == 2 and min(shape) > 1


def _zeros(graph: Graph, shape: tuple[int, int]) -> Value:
    type_ = TensorType(DType.FLOAT32, shape)
    return graph.constant(TensorValue(type_, ZeroData(type_.nbytes)))
