"""On CPU: a gradient times the weight of its micro-batch, and zeros where that is zero, is one kernel and not four.

MindSpore's kernel of Select takes nine times as long for an element as the product of both.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.core.graph import Graph, Node
from ...ir.core.primitives import CPU
from ...ir.core.wording import counted
from .context import Context


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and any(True for _ in _weighted(graph))


def run(graph: Graph, context: Context) -> str:
    found = list(_weighted(graph))
    for choice, product in found:
        with graph.inserting_before(choice):
            once = graph.create("MulNoNan", product.operands, product.type, scope=choice.scope, sources=[choice])
        choice.replace_uses(once)
        for node in (choice, *reversed(choice.operands)):
            if isinstance(node, Node) and not node.uses:
                graph.erase(node)
    return f"{counted(len(found), 'product')} with a weight that may be zero made at once"


def _weighted(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Each choice between a product and zeros by whether its second factor is zero, and the product."""
    for node in graph:
        parts = [v for v in node.operands if isinstance(v, Node)]
        if [node.op.name, *(v.op.name for v in parts)] == ["Select", "NotEqual", "Mul", "ZerosLike"]:
            counts, product, zeros = parts
            weight, nothing = counts.operands
            if product.operand(1) is weight and zeros.operand(0) is product and nothing.is_zero:
                yield node, product
