"""Nodes of the forward part once more in the backward part, as MindSpore's ``Cell.recompute`` writes them.

A copy waits for the gradient that comes into its piece: what it takes of the values that were kept passes a Depend on
that gradient. Without it MindSpore's runtime would run the copy as soon as its operands are there, in the forward part,
and MindSpore's own merging of equal nodes would take it out. Scope and marks are MindSpore's (2.10), so its tools and a
later compilation know the copies for what they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...ir.analysis.training.network import BACKWARD
from ...ir.core.graph import Constant, Node, Value
from ...ir.core.names import DUPLICATED
from ...ir.core.types import TensorType
from ...ir.core.walk import walk
from .candidates import Forward, backward_uses

SCOPE = "recompute_"


@dataclass(slots=True)
class Copies:
    """``copied``: the nodes that run again, and the copy of each. ``unguarded``: wanted nodes for whose piece the
    backward part has no gradient to wait for."""

    copied: dict[Node, Node] = field(default_factory=dict)
    unguarded: list[Node] = field(default_factory=list)


def run_again(forward: Forward, pieces: Iterable[set[Node]]) -> Copies:
    """Writes copies of the nodes of each piece that the backward part takes, and of those that these need, and makes
    the backward part take the copies. Nodes of other pieces are taken as they are. The caller rebuilds the order of
    effects. Linear in nodes and operands, but for sorting."""
    done = Copies()
    order = list(forward.graph)
    position = {node: at for at, node in enumerate(order)}
    for piece in pieces:
        _run_piece_again(forward, piece, order, position, done)
    return done


def _run_piece_again(
    forward: Forward, piece: set[Node], order: Sequence[Node], position: Mapping[Node, int], done: Copies
) -> None:
    graph = forward.graph
    wanted = [node for node in piece if node in forward.wanted]
    needed = set(walk(wanted, lambda node: [v for v in forward.operands(node) if v in piece]))
    uses = sorted(
        ((user, i, node) for node in wanted for user, i in backward_uses(node, forward.parts)),
        key=lambda use: (position[use[0]], use[1]),
    )
    if not uses:
        return
    first = uses[0][0]
    gradient = _incoming(first, order[: position[first]], forward)
    if gradient is None:
        done.unguarded.extend(wanted)
        return
    guarded: dict[Value, Node] = {}

    def guard(value: Value) -> Node:
        if value not in guarded:
            waits = graph.create("MakeTuple", [gradient], scope=SCOPE + "Default", sources=[gradient])
            guarded[value] = graph.create(
                "Depend", [value, waits], value.type, scope=SCOPE + "Default", sources=[value]
            )
            guarded[value].marks = {"recompute_depend": True}
        return guarded[value]

    copied: dict[Node, Node] = {}
    with graph.inserting_before(first):
        for node in sorted(needed, key=position.__getitem__):
            inside = any(v in copied for v in node.operands)
            operands: list[Value] = []
            for operand in node.operands:
                if isinstance(operand, Node) and operand in copied:
                    operands.append(copied[operand])
                elif isinstance(operand, Constant) or (inside and _is_read(operand)):
                    operands.append(operand)
                else:
                    operands.append(guard(operand))
            copy = graph.create(node.op, operands, node.type, scope=SCOPE + node.scope, sources=[node])
            copy.marks = {**node.marks, DUPLICATED: True, "need_cse_after_recompute": True}
            copied[node] = copy
    for user, i, node in uses:
        user.set_operand(i, copied[node])
    done.copied.update(copied)


def _is_read(value: Value) -> bool:
    """Whether a value is a state's: it is there anyway, and waiting for it would copy nothing."""
    return isinstance(value, Node) and value.op.name == "Load"


def _incoming(user: Node, before: Sequence[Node], forward: Forward) -> Node | None:
    """The gradient that the first user of a piece takes, or, where it takes none, the last one computed before it."""
    taken = [v for v in user.operands if isinstance(v, Node) and _is_gradient(v, forward)]
    return taken[-1] if taken else next((node for node in reversed(before) if _is_gradient(node, forward)), None)


def _is_gradient(node: Node, forward: Forward) -> bool:
    return forward.parts.get(node) == BACKWARD and isinstance(node.type, TensorType)
