"""On CPU: the squares of big gradients, which a clip adds up, are added up by a product of the gradient with itself.

One kernel reads the gradient, and writes one number: 0.5 ns an element, where squares and their sums by rows take 0.8
and three kernels. With AVX-512 that holds for fewer than 65,536 elements; more take twice as long as by rows. A product
adds up in another order, whose error grows with the number of elements where all are equal: 2.5e-5 of the sum for 16
million, 2e-4 for 67 million (docs/mindir.md). So the largest ones are added up by rows.
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
LARGEST_WITH_AVX512 = (1 << 16) - 1
"""Elements up to which a product is fast where oneDNN may use AVX-512: in programs without convolutions."""


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and any(_chain(node, context) for node in graph)


def run(graph: Graph, context: Context) -> str:
    chains = [chain for node in graph if (chain := _chain(node, context))]
    for chain in chains:
        first, last = chain[0], chain[-1]
        with graph.inserting_before(first):
            total = added_squares(graph, first.operand(0), context, scope=last.scope)
        last.replace_uses(total)
        graph.erase_all(chain)
    return f"the squares of {counted(len(chains), 'big gradient')} added up by products"


def added_squares(graph: Graph, value: Value, context: Context, *, scope: str) -> Value:
    """The sum of the squares of a float32 tensor."""
    size = tensor_type(value).size
    if not BIG <= size <= _largest(context):
        return square_sum(graph, value, scope=scope)
    n = Nodes(graph, scope)
    column = n.reshape(value, size, 1)
    return n.reshape(n.matmul(column, column, transpose_a=True))


def _largest(context: Context) -> int:
    return LARGEST if context.convolves else LARGEST_WITH_AVX512


def _chain(node: Node, context: Context) -> tuple[Node, ...]:
    """The nodes from ``node`` to the sum of squares of a big float32 tensor; none where it begins no such sum."""
    chain = whole_square_sum_from(node)
    type_ = tensor_type(node.operand(0)) if chain else None
    if type_ is None or not type_.is_static or type_.dtype is not DType.FLOAT32:
        return ()
    return chain if BIG <= type_.size <= _largest(context) else ()
