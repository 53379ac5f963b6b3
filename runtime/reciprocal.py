"""Gradients multiplied by the reciprocal of what they are divided by."""

from __future__ import annotations

from ..ir.attributes import scalar_tensor
from ..ir.gradient_path import NORMALISATION, STAGE
from ..ir.graph import Graph, tensor_type
from ..ir.values import Node

SCOPE = "reciprocal"


def multiply_by_reciprocal(graph: Graph, micro_batches: int) -> Graph:
    """A copy of ``graph`` that multiplies gradients by the reciprocal of their divisor (accumulation's number of
    micro-batches, a loss scale); ``graph`` itself where nothing is divided, or a cycle's number of micro-batches is no
    power of two.

    On CPU a division takes twice to three times as long as a multiplication. By a power of two both give the same bits.
    Other divisors then round once more: a cycle that ends early, after three of four micro-batches, a number of ranks
    or a loss scale that is no power of two (of which MindSpore's own training cell takes the reciprocal, too).
    """
    if micro_batches & (micro_batches - 1) or not any(_divisions(graph)):
        return graph
    copy = graph.clone()[0]
    for divisor, quotients in _divisions(copy).items():
        # Where the divisor is cast, so is one: the type of the quotients.
        with copy.inserting_before(quotients[0]):
            one = copy.constant(scalar_tensor(tensor_type(divisor).dtype, 1.0))
            reciprocal = copy.create("RealDiv", [one, divisor], scope=SCOPE)
        for node in quotients:
            with copy.inserting_before(node):
                product = copy.create("Mul", [node.operand(0), reciprocal], scope=node.scope, sources=[node])
            node.replace_uses(product)
            copy.erase(node)
    copy.sort()
    return copy


def _divisions(graph: Graph) -> dict[Node, list[Node]]:
    """What is divided by the divisor of the graph, or a cast of it."""
    found: dict[Node, list[Node]] = {}
    for node in graph:
        divisor = node.operand(1) if node.op.name == "RealDiv" else None
        source = divisor
        while isinstance(source, Node) and source.op.name == "Cast":
            source = source.operand(0)
        if isinstance(divisor, Node) and isinstance(source, Node) and source.marks.get(STAGE) == NORMALISATION:
            found.setdefault(divisor, []).append(node)
    return found
