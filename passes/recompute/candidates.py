"""Which forward nodes may run again, and what must be kept for the backward part."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ...ir.analysis.cost.footprint import NODE
from ...ir.analysis.cost.kernel_memory import kernel_memory
from ...ir.analysis.cost.memory import nbytes
from ...ir.analysis.cost.running_order import running_order
from ...ir.analysis.effects.state_access import place
from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.network import BACKWARD, FORWARD, network_parts
from ...ir.analysis.training.phases import phases
from ...ir.core.graph import Graph, Node, State, Value
from ...ir.core.names import DUPLICATED
from ...ir.core.op import CALL
from ...ir.core.predicates import is_effect, is_random, written_operands
from ...ir.core.primitives import VIEWS, Family, facts, named
from ...ir.core.types import TensorType, TupleType, holds_function
from ...ir.core.walk import carried_operands, through, walk
from ...ir.rewrite.cpu.broadcasting import is_lowered
from ...ir.rewrite.cpu.transposing import moves_rows
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.in_place import forward_without_writes
from ...ir.rewrite.ranks.collectives import is_collective
from ..step.again import waiting
from ..step.put_off import put_off
from .stand_ins import has_stand_in, is_kept

_WAIT = 2 * NODE
"""Bytes that it costs to let a node wait."""
_PRODUCTS = named(
    Family.MATMUL, Family.AFFINE, Family.CONVOLUTION, Family.TRANSPOSED_CONVOLUTION, Family.RECURRENT,
    Family.FILTER_GRADIENT,
)  # fmt: skip


@dataclass(frozen=True)
class Forward:
    """The forward part of a graph as the pass sees it. ``nodes``: those in the main graph that compute tensors, in
    order. ``replaced``: those that another node stands in for (:mod:`.stand_ins`). ``wanted``: those that the backward
    part takes. ``obstacles``: why a node cannot run again, "" if it can. ``order``: all nodes of the graph as they run.
    ``phase``: the updates before each (:mod:`ir.analysis.training.phases`)."""

    graph: Graph
    target: str
    parts: Mapping[Node, str]
    nodes: list[Node]
    replaced: set[Node]
    wanted: set[Node]
    obstacles: Mapping[Node, str]
    order: list[Node]
    phase: Mapping[Node, int]

    @cached_property
    def position(self) -> Mapping[Node, int]:
        """Where each node stands in the graph."""
        return {node: at for at, node in enumerate(self.graph)}

    @cached_property
    def kept(self) -> set[Node]:
        """What is in memory for what the backward part takes, which may be views of it."""
        return self.memory(self.wanted)

    def of_copy(self, copy: Graph, of: Mapping[Node, Node]) -> Forward:
        """The forward part of a copy of the graph; ``of`` leads from its nodes to those of the copy."""
        return Forward(
            copy,
            self.target,
            {of[node]: part for node, part in self.parts.items()},
            [of[node] for node in self.nodes],
            {of[node] for node in self.replaced},
            {of[node] for node in self.wanted},
            {of[node]: why for node, why in self.obstacles.items()},
            [of[node] for node in self.order],
            {of[node]: phase for node, phase in self.phase.items()},
        )

    def operands(self, node: Node) -> list[Node]:
        """The forward nodes that a node computes from."""
        return [v for v in carried_operands(node) if isinstance(v, Node) and v in self.obstacles]

    def memory(self, nodes: Iterable[Node]) -> set[Node]:
        """The forward nodes whose results are in memory for ``nodes``: themselves, and what is behind views."""
        found = walk(nodes, lambda node: self.operands(node) if is_view(node) else ())
        return {node for node in found if not is_view(node)}

    def users(self, node: Node) -> Iterator[Node]:
        """The forward nodes that compute from a node."""
        return (u for u, i in node.use_sites() if u in self.obstacles and not orders_only(u, i))


def forward_of(graph: Graph, target: str) -> Forward:
    """The forward part of a graph that need not be a whole training step. Linear in nodes."""
    parts = network_parts(graph)
    nodes = [n for n in graph if parts.get(n) == FORWARD and n.op.name != "Load" and _holds_tensors(n)]
    replaced = {n for n in nodes if has_stand_in(n, parts, target)}
    wanted = {n for n in nodes if any(True for _ in backward_uses(n, parts, replaced))}
    overwritten = _overwritten(graph)
    obstacles = {node: _obstacle(node, replaced, overwritten) for node in nodes}
    order = running_order(graph)
    phase = phases(order, parts)
    for node in nodes:
        if phase[node] and any(isinstance(v, State) for v in node.operands):
            obstacles[node] = "it reads a state that was updated before"
    return Forward(graph, target, parts, nodes, replaced, wanted, obstacles, order, phase)


def prepare(graph: Graph) -> int:
    """Makes a graph ready for copies. What the forward part adds in place (``x += y``) gets a result of its own, so
    that it can run again. What the backward part computes of the forward part alone waits until a gradient needs it;
    returns how many nodes do."""
    parts = network_parts(graph)
    forward_without_writes(graph, {node for node in graph if parts.get(node) == FORWARD})
    late = put_off(graph, network_parts(graph))
    wait: set[Node] = set()
    for node in [node for node in graph if node in late]:
        taken = [(i, v) for i, v in enumerate(node.operands) if isinstance(v, Node) and not orders_only(node, i)]
        if not taken or late[node] in late or bytes_of(node) < _WAIT:
            continue
        if not any(value in wait for _, value in taken):
            with graph.inserting_before(node):
                node.set_operand(taken[0][0], waiting(graph, taken[0][1], late[node]))
        wait.add(node)
    if wait:
        Effects(graph).commit()
    return len(wait)


def backward_uses(node: Node, parts: Mapping[Node, str], replaced: Collection[Value]) -> Iterator[tuple[Node, int]]:
    """Where the backward part computes from a forward value that may run again."""
    for user, i in node.use_sites():
        if parts.get(user) == BACKWARD and not orders_only(user, i) and not is_kept(user, replaced):
            yield user, i


def is_cheap(node: Node) -> bool:
    """Whether a node costs little time, and no memory of its own, beside a product of matrices or a convolution."""
    return node.op.name not in _PRODUCTS and _kernel_memory(node) == 0


def _kernel_memory(node: Node) -> int:
    """What a second kernel would keep, where that grows with the result as the blocks of a product do not."""
    lowered = is_lowered(node) or moves_rows(node)
    return 0 if lowered or node.op.name in _PRODUCTS else kernel_memory(node, 1)


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


def _overwritten(graph: Graph) -> set[Value]:
    """Computed tensors that are written in place."""
    effects = (node for node in graph if node.op is not CALL and is_effect(node))
    return {where for node in effects for i in written_operands(node) if isinstance(where := _memory(node, i), Node)}


def _memory(node: Node, i: int) -> Value | None:
    """The state or the node behind an operand."""
    return place(through(node.operand(i), ("Load", "Depend")))


def _obstacle(node: Node, replaced: Collection[Value], overwritten: Collection[Value]) -> str:
    if overwritten and (node in overwritten or any(_memory(node, i) in overwritten for i in range(node.num_operands))):
        return "its memory, or what it takes, is written in place"
    if node in replaced:
        return ""
    if is_kept(node, replaced):
        return "what is computed again takes it"
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
    if _kernel_memory(node) >= nbytes(node.type) > 0:
        return "a second kernel would keep more memory than its result takes"
    return ""
