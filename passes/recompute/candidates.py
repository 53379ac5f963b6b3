"""Which forward nodes may run again, and what must be kept for the backward part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...ir.analysis.cost.kernel_memory import kernel_memory
from ...ir.analysis.cost.memory import nbytes
from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.network import BACKWARD, FORWARD, network_parts
from ...ir.core.graph import Graph, Node
from ...ir.core.names import DUPLICATED
from ...ir.core.op import CALL
from ...ir.core.predicates import is_effect, is_random
from ...ir.core.primitives import VIEWS, Family, facts, named
from ...ir.core.types import TensorType, TupleType, holds_function
from ...ir.core.walk import carried_operands
from ...ir.rewrite.ranks.collectives import is_collective

_PRODUCTS = named(
    Family.MATMUL, Family.AFFINE, Family.CONVOLUTION, Family.TRANSPOSED_CONVOLUTION, Family.RECURRENT,
    Family.FILTER_GRADIENT,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Forward:
    """The forward part of a graph as the pass sees it. ``nodes``: those in the main graph that compute tensors, in
    order. ``wanted``: those that the backward part takes. ``obstacles``: why a node cannot run again, "" if it can."""

    graph: Graph
    parts: Mapping[Node, str]
    nodes: list[Node]
    wanted: set[Node]
    obstacles: Mapping[Node, str]

    def operands(self, node: Node) -> list[Node]:
        """The forward nodes that a node computes from."""
        return [v for v in carried_operands(node) if isinstance(v, Node) and v in self.obstacles]

    def users(self, node: Node) -> Iterator[Node]:
        """The forward nodes that compute from a node."""
        return (u for u, i in node.use_sites() if u in self.obstacles and not orders_only(u, i))


def forward_of(graph: Graph) -> Forward:
    """The forward part of a graph that need not be a whole training step. Linear in nodes."""
    parts = network_parts(graph)
    nodes = [n for n in graph if parts.get(n) == FORWARD and n.op.name != "Load" and _holds_tensors(n)]
    wanted = {n for n in nodes if any(True for _ in backward_uses(n, parts))}
    return Forward(graph, parts, nodes, wanted, {node: _obstacle(node) for node in nodes})


def backward_uses(node: Node, parts: Mapping[Node, str]) -> Iterator[tuple[Node, int]]:
    """Where the backward part computes from a forward value."""
    return ((u, i) for u, i in node.use_sites() if parts.get(u) == BACKWARD and not orders_only(u, i))


def is_cheap(node: Node) -> bool:
    """Whether a node costs little time, and no memory of its own, beside a product of matrices or a convolution."""
    return node.op.name not in _PRODUCTS and kernel_memory(node, 1) == 0


def is_view(node: Node) -> bool:
    """Whether a node's result is the memory of an operand; an element of a tuple that a kernel made is none."""
    source = node.operand(0) if node.op.name == "TupleGetItem" else None
    return node.op.name in VIEWS and not (isinstance(source, Node) and source.op.name not in VIEWS)


def bytes_of(node: Node) -> int:
    """The memory of a node's result; a tuple's is that of its elements, which stand for themselves."""
    return 0 if isinstance(node.type, TupleType) else nbytes(node.type)


def _holds_tensors(node: Node) -> bool:
    kind = node.type
    return isinstance(kind, TensorType) or (isinstance(kind, TupleType) and not holds_function(kind))


def _obstacle(node: Node) -> str:
    if DUPLICATED in node.marks:
        return "it is a copy that runs again already"
    if is_collective(node):
        return "it exchanges values with other ranks"
    if is_random(node):
        return "it draws random numbers, which would be others"
    if node.op is CALL or facts(node.op).family is Family.CLOSURE:
        return "it calls a function"
    if is_effect(node) or facts(node.op).writes:
        return "it changes state"
    if kernel_memory(node, 1) >= nbytes(node.type) > 0:
        return "a second kernel would keep more memory than its result takes"
    return ""
