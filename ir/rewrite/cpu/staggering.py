"""On CPU: the gradient of an update is computed from its accumulator when the update before it is done. So is a big
gradient that a number scales, from the gradient.

MindSpore starts what waits for nothing at once: all the gradients of a cycle's update would be in memory together. Only
what is computed for one update alone is put off; what a norm or an overflow check measures is needed before. A product
that the update takes at once is still in the processor's cache.
"""

from __future__ import annotations

from ...analysis.effects.tokens import orders_only
from ...core.graph import Constant, Graph, Node, State, Value
from ...core.inference import infer
from ...core.predicates import is_effect, is_pure, written_operands
from ...core.primitives import CPU, Family, facts
from ...core.types import TensorType
from ...core.wording import counted
from .target import Target


def applies(graph: Graph, context: Target) -> bool:
    return context.target == CPU and any(_source(node) for node in graph)


def run(graph: Graph, context: Target) -> str:
    depth = _depths(graph)
    ends = _overwritten(depth)
    delayed = 0
    row = _row(graph)
    waiting: dict[Node, None] = {}
    previous: Node | None = None
    needed = -1
    for node in sorted((n for n in graph if n in depth), key=depth.__getitem__):
        chain = _source(node)
        if chain is None:
            continue
        bottom, i = chain[-1]
        read = bottom.operand(i)
        state = read.operand(0) if isinstance(read, Node) and read.op.name == "Load" else None
        # The token waits for who reads the accumulator; it may wait for the update instead if that comes first.
        if ends.get(state, depth[node] + 1) <= depth[node]:
            continue
        # A sum over ranks that comes earlier in their row must not wait for an update that needs a later one.
        if previous is not None and needed < min((row[n] for n, _ in chain if _is_collective(n)), default=len(row)):
            needed = max(needed, row[node])
            for taker, _ in chain:
                waiting.update(dict.fromkeys(_wait_no_more(graph, taker)))
            with graph.inserting_before(bottom):
                bottom.set_operand(i, graph.create("Depend", [read, previous]))
            delayed += 1
        else:
            needed = row[node]
        previous = node
    if not delayed:
        return ""
    for user in waiting:
        user.type = infer(user.op, user.operands)
    graph.sort()
    return f"{counted(delayed, 'gradient')} put off until the one before is used"


BIG = 1 << 16
"""Elements of a gradient that is scaled from which it matters when."""
Chain = list[tuple[Node, int]]
"""Nodes that are computed for one effect, nearest first, each with the operand that the next one is."""


def _source(update: Node) -> Chain | None:
    """The way from an optimizer's gradient up to the Load of a state, if nobody else takes what is on it, or up to a
    big gradient that others take too."""
    position = facts(update.op).gradient
    if position is None:
        return None
    chain: Chain = []
    value = update.operand(position)
    while isinstance(value, Node) and value.op.name != "Load":
        if not is_pure(value) or not value.num_operands or _takers(value) != 1:
            return chain if chain and _scales(chain[-1][0]) else None
        chain.append((value, 0))
        value = value.operand(0)
    loaded = isinstance(value, Node) and isinstance(value.operand(0), State)
    return chain if chain and loaded else None


def _scales(node: Node) -> bool:
    """Whether a node multiplies a big tensor by a number."""
    type_, by = node.type, node.operand(1).type if node.op.name in ("Mul", "MulNoNan") else None
    number = isinstance(by, TensorType) and by.shape == ()
    return number and isinstance(type_, TensorType) and type_.is_static and type_.size >= BIG


def _takers(value: Node) -> int:
    return sum(not orders_only(user, i) for user, i in value.use_sites())


def _wait_no_more(graph: Graph, value: Node) -> list[Node]:
    """Takes a value out of what tokens wait for, and returns the tuples that it stood in, whose types are wrong now."""
    tuples = [(user, i) for user, i in value.use_sites() if user.op.name == "MakeTuple" and orders_only(user, i)]
    for user, i in tuples:
        user.set_operand(i, graph.constant(True))
    return [user for user, _ in tuples]


def _depths(graph: Graph) -> dict[Node, int]:
    """How many tokens come before each effect."""
    tokens: dict[Value, int] = {}
    depth: dict[Node, int] = {}
    for node in graph:
        if node.op.name == "UpdateState":
            tokens[node] = tokens.get(node.operand(0), 0) + 1
        elif is_effect(node) and node.num_operands:
            depth[node] = tokens.get(node.operand(node.num_operands - 1), 0)
    return depth


def _row(graph: Graph) -> dict[Node, int]:
    """By node, the last collective that it needs, counted in the row in which they stand (see
    :mod:`..ranks.ownership`): all before it are needed, too. -1 where they stand in none."""
    found: dict[Node, int] = {}
    placed = any(node.op.name == "Depend" and _is_collective(node.operand(1)) for node in graph)
    number = 0
    for node in graph:
        found[node] = max((found[v] for v in node.operands if isinstance(v, Node)), default=-1)
        if placed and _is_collective(node):
            found[node], number = number, number + 1
    return found


def _is_collective(value: Value) -> bool:
    return isinstance(value, Node) and facts(value.op).family is Family.COLLECTIVE


def _overwritten(depth: dict[Node, int]) -> dict[Value | None, int]:
    """The depth of the first write of each state."""
    found: dict[Value | None, int] = {}
    for node, at in depth.items():
        for i in written_operands(node):
            state = node.operand(i)
            if not isinstance(state, Constant):
                found[state] = min(found.get(state, at), at)
    return found
