"""On CPU: the squares of big gradients, which a clip adds up, are added up by a product of the gradient with itself.

One kernel reads the gradient, and writes one number: 0.5 ns an element, where squares and their sums by rows take 0.8
and three kernels. It adds up in another order, whose error grows with the number of elements where all are equal:
2.5e-5 of the sum for 16 million, 2e-4 for 67 million (docs/mindir.md). So the largest ones are added up by rows.
"""

from __future__ import annotations

from ...ir.builders.nodes import Nodes
from ...ir.builders.reduce import BIG, square_sum
from ...ir.core.graph import Graph, Node, Value, tensor_type
from ...ir.core.primitives import CPU
from ...ir.core.types import DType
from ...ir.core.wording import counted
from .context import Context
from .measures import whole_square_sum_from

LARGEST = 1 << 24
"""Elements of a gradient up to which the error of a product is small."""


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and any(map(_chain, graph))


def run(graph: Graph, context: Context) -> str:
    chains = [chain for node in graph if (chain := _chain(node))]
    for chain in chains:
        first, last = chain[0], chain[-1]
        with graph.inserting_before(first):
            total = added_squares(graph, first.operand(0), scope=last.scope)
        last.replace_uses(total)
        graph.erase_all(chain)
    return f"the squares of {counted(len(chains), 'big gradient')} added up by products"


def added_squares(graph: Graph, value: Value, *, scope: str) -> Value:
    """The sum of the squares of a float32 tensor."""
    size = tensor_type(value).size
    if not BIG <= size <= LARGEST:
        return square_sum(graph, value, scope=scope)
    n = Nodes(graph, scope)
    column = n.reshape(value, size, 1)
    return n.reshape(n.matmul(column, column, transpose_a=True))


def _chain(node: Node) -> tuple[Node, ...]:
    """The nodes from ``node`` to the sum of squares of a big float32 tensor; none where it begins no such sum."""
    chain = whole_square_sum_from(node)
    type_ = tensor_type(node.operand(0)) if chain else None
    known = type_ is not None and type_.is_static and type_.dtype is DType.FLOAT32 and BIG <= type_.size <= LARGEST
    return chain if known else ()
