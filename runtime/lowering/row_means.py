"""On CPU: the mean that centralizes a gradient of convolutions is taken along the rows of a matrix.

Over several axes the kernel of a mean takes 4 ns an element, and that of a Tile which repeats it as much; along the
last axis both take a tenth (docs/mindir.md). So the gradient becomes a matrix, and gets its shape back. Means of the
file keep their order, and their bits.
"""

from __future__ import annotations

from math import prod

from ...ir.analysis.training.stages import CENTRALIZE
from ...ir.builders.nodes import Nodes
from ...ir.builders.reduce import BIG, reduce_mean
from ...ir.core.graph import Graph, Node, tensor_type
from ...ir.core.names import STAGE
from ...ir.core.primitives import CPU
from ...ir.core.types import DType
from ...ir.core.wording import counted
from .context import Context
from .measures import reads_state


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and any(_rows(node) for part in graph.all_graphs() for node in part)


def run(graph: Graph, context: Context) -> str:
    found = [(part, node, rows) for part in graph.all_graphs() for node in part if (rows := _rows(node))]
    for part, node, rows in found:
        value, mean = node.operands
        shape = tensor_type(value).shape
        n = Nodes(part, node.scope)
        with part.inserting_before(node):
            matrix = n.reshape(value, rows, prod(shape) // rows)
            centralized = n.op("Sub", matrix, reduce_mean(part, matrix, (1,), keep=True, scope=node.scope))
            node.replace_uses(n.reshape(centralized, *shape))
        part.erase_all([node, mean] if isinstance(mean, Node) else [node])
    return f"{counted(len(found), 'gradient')} centralized as a matrix"


def _rows(node: Node) -> int:
    """Of a difference by which a big gradient is centralized over several axes, its last ones, how many means are
    taken; 0 for any other node."""
    if node.op.name != "Sub" or node.marks.get(STAGE) != CENTRALIZE:
        return 0
    value, mean = node.operands
    type_ = tensor_type(value)
    if not isinstance(mean, Node) or mean.op.name != "ReduceMean" or mean.operand(0) is not value or len(mean.uses) > 1:
        return 0
    axes = mean.operand(1).literal
    if type_.dtype is not DType.FLOAT32 or not type_.is_static or type_.size < BIG or reads_state(value):
        return 0
    if not isinstance(axes, tuple) or len(axes) < 2 or mean.operand(2).literal is not True:
        return 0
    kept = len(type_.shape) - len(axes)
    return prod(type_.shape[:kept]) if sorted(axes) == [*range(kept, len(type_.shape))] else 0
