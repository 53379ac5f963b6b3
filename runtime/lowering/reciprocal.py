"""On CPU: gradients are multiplied by the reciprocal of a loss scale that is a power of two, with the same bits.

MindSpore's kernel of RealDiv takes several times as long for an element as that of Mul, and each gradient of a step is
unscaled.
"""

from __future__ import annotations

from math import frexp

from ...ir.core.attributes import scalar_tensor
from ...ir.core.graph import Graph, Node, State, Value
from ...ir.core.primitives import CPU
from ...ir.core.types import DType, TensorType
from ...ir.core.walk import through
from ...ir.core.wording import counted
from .context import Context

_RULE = {"factor", "min", "max"}
"""The notes of a loss scale that say how it changes."""


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and any(_unscales(node, context) for node in graph)


def run(graph: Graph, context: Context) -> str:
    found = [node for node in graph if _unscales(node, context)]
    reciprocals: dict[Value, Value] = {}
    for node in found:
        value, scale = node.operands
        with graph.inserting_before(node):
            if scale not in reciprocals:
                one = graph.constant(scalar_tensor("float32", 1.0))
                reciprocals[scale] = graph.create("RealDiv", [one, scale], scope=node.scope)
            product = graph.create("Mul", [value, reciprocals[scale]], scope=node.scope, sources=[node])
        graph.substitute(node, product)
    return f"{counted(len(found), 'division')} by a loss scale turned into multiplications"


def _unscales(node: Node, context: Context) -> bool:
    """Whether a node divides by a dynamic loss scale that is always a power of two: what it begins with, by what it
    shrinks and grows, and its bounds."""
    if node.op.name != "RealDiv" or not isinstance(node.operand(0), Node):
        return False
    state = through(node.operand(1), ("Load", "Depend"))
    variable = context.program.state.get(state.name) if isinstance(state, State) else None
    if variable is None or variable.type != TensorType(DType.FLOAT32, ()) or not variable.info.keys() >= _RULE:
        return False
    numbers = [variable.initial.item(), *(variable.info[name] for name in _RULE)]
    return all(frexp(float(number))[0] == 0.5 for number in numbers)
