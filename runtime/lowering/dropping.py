"""On CPU: a micro-batch that overflows adds zeros by a product with a number, which is 0 then and else 1.

The pass selects zeros, or the gradient, for each accumulator. The kernel of Select takes three times as long as a
product, and the zeros are written first. Products with one number are also made at once for small gradients. The bits
are the same, but for numbers below 1.2e-38, which some of MindSpore's threads round to zero where they compute.
"""

from __future__ import annotations

from ...ir.analysis.effects.state_access import state_behind
from ...ir.analysis.effects.tokens import orders_only
from ...ir.builders.nodes import Nodes
from ...ir.core.graph import Graph, Node, Value, tensor_type
from ...ir.core.primitives import CPU
from ...ir.core.types import DType, TensorType
from ...ir.core.wording import counted
from .context import Context
from .measures import reads_state


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and any(_drops(node, context) for node in graph)


def run(graph: Graph, context: Context) -> str:
    found = [node for node in graph if _drops(node, context)]
    numbers: dict[Value, Value] = {}
    for node in found:
        overflow, zeros, value = node.operands
        n = Nodes(graph, node.scope)
        with graph.inserting_before(node):
            if overflow not in numbers:
                numbers[overflow] = n.op("Select", overflow, n.number(0.0), n.number(1.0))
            operands, type_ = [value, numbers[overflow]], tensor_type(value)
            product = graph.create("MulNoNan", operands, TensorType(type_.dtype, type_.shape), scope=node.scope)
        graph.substitute(node, product)
        if isinstance(zeros, Node) and not zeros.uses:
            graph.erase(zeros)
    return f"{counted(len(found), 'gradient')} dropped by products"


def _drops(node: Node, context: Context) -> bool:
    """Whether a node is what an accumulator gets: zeros where something overflows, a float32 gradient elsewhere."""
    if node.op.name != "Select":
        return False
    overflow, zeros, value = node.operands
    if not (isinstance(zeros, Node) and zeros.op.name == "ZerosLike" and zeros.operand(0) is value):
        return False
    if tensor_type(overflow).shape != () or tensor_type(value).dtype is not DType.FLOAT32 or reads_state(value):
        return False
    return all(orders_only(*use) or _accumulates(*use, context) for use in node.use_sites())


def _accumulates(user: Node, i: int, context: Context) -> bool:
    """Whether a value is added to an accumulator, or in the last graph of a cycle to what one holds."""
    if user.op.name not in ("Add", "AssignAdd"):
        return False
    state = state_behind(user.operand(1 - i))
    if state is None or state.name not in context.program.state:
        return False
    return context.program.state[state.name].role == "accumulator"
