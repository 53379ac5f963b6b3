"""On CPU: small gradients of one shape that a number scales for their optimizers are scaled as one.

They are stacked, multiplied, and split again: three kernels in the place of one for each. The bits are the same.
"""

from __future__ import annotations

from collections.abc import Hashable

from ...ir.builders.reduce import BIG
from ...ir.core.graph import Graph, Node, tensor_type
from ...ir.core.primitives import CPU, facts
from ...ir.core.types import TensorType, TupleType
from ...ir.core.walk import walk
from ...ir.core.wording import counted
from .context import Context
from .measures import is_scaling, reads_state

FEWEST = 5
"""Gradients of one shape that are worth it."""


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and bool(_stacks(graph))


def run(graph: Graph, context: Context) -> str:
    stacks = _stacks(graph)
    for products in stacks:
        _stack(graph, products)
    graph.sort()
    return f"{counted(sum(map(len, stacks)), 'small gradient')} scaled with others of their shape"


def _stacks(graph: Graph) -> list[list[Node]]:
    """The products that go together, in the order of the graph."""
    products = [node for node in graph if _scales_for_an_optimizer(node)]
    behind = set(walk(products, lambda node: node.users))
    found: dict[Hashable, list[Node]] = {}
    for node in products:
        if node.operand(0) not in behind:
            found.setdefault((node.op, node.operand(0).type, node.operand(1)), []).append(node)
    return [stack for stack in found.values() if len(stack) >= FEWEST]


def _scales_for_an_optimizer(node: Node) -> bool:
    """Whether a node multiplies a small gradient by a number, and an optimizer alone takes it."""
    if node.op.name not in ("Mul", "MulNoNan") or not is_scaling(node) or reads_state(node.operand(0)):
        return False
    type_, uses = tensor_type(node), list(node.use_sites())
    if not (type_.is_static and type_.shape and 0 < type_.size < BIG and len(uses) == 1):
        return False
    user, i = uses[0]
    return facts(user.op).gradient == i


def _stack(graph: Graph, products: list[Node]) -> None:
    first, count = products[0], len(products)
    single = TensorType(tensor_type(first).dtype, tensor_type(first).shape)
    whole = TensorType(single.dtype, (count * single.shape[0], *single.shape[1:]))
    gradients = graph.create("MakeTuple", [node.operand(0) for node in products])
    stacked = graph.create("Concat", [gradients, graph.constant(0)], whole)
    scaled = graph.create(first.op, [stacked, first.operand(1)], whole, scope=first.scope, sources=products)
    bounds = [graph.constant(0), graph.constant(count)]
    parts = graph.create("Split", [scaled, *bounds], TupleType((single,) * count))
    for i, node in enumerate(products):
        graph.substitute(node, graph.create("TupleGetItem", [parts, graph.constant(i)], single))
