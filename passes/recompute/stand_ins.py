"""What stands in for a node that must not run twice, and gives its first result again from its other results.

- A BatchNorm in training would move its statistics twice. The mean and the variance of the batch are among its results,
  so a BatchNorm at rest normalises by them. On CPU that gives the same bits, and need not sum over the batch again. On
  other targets the fourth result is not the variance.
- A Dropout would draw another mask. DropoutGrad multiplies by a mask as Dropout does (docs/mindir.md); the backward
  part keeps the mask for it anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.network import BACKWARD, FORWARD
from ...ir.core.graph import Graph, Node, Value
from ...ir.core.op import CALL, Op
from ...ir.core.predicates import has_token, rests, written_operands
from ...ir.core.primitives import CPU, facts, make_op

_MEAN, _VARIANCE = 3, 4
_MASK = 1


def has_stand_in(node: Node, parts: Mapping[Node, str], target: str) -> bool:
    """Whether :func:`stand_in` can make the first result of ``node`` again."""
    if node.op.name == "Dropout":
        return _takes_elements(node) and _masking(node, parts) is not None
    if node.op.name != "BatchNorm" or target != CPU or rests(node):
        return False
    training = facts(node.op).training
    return (
        training is not None
        and training < node.num_operands
        and node.operand(training).literal is True
        and _takes_elements(node)
        and not any(_changes(user, i, parts) for v in node.operands[1:3] for user, i in v.use_sites())
    )


def stand_in(
    graph: Graph, node: Node, operands: list[Value], parts: Mapping[Node, str], scope: str
) -> tuple[Node, Node]:
    """A tuple whose first element is that of ``node`` for ``operands``, no token among them, and the node that computes
    it."""
    if node.op.name == "Dropout":
        grad = _masking(node, parts)
        assert grad is not None
        mask = grad.operand(1)
        again = graph.create(grad.op, [operands[0], mask], grad.type, scope=scope, sources=[node])
        return graph.create("MakeTuple", [again, mask], node.type, scope=scope, sources=[node]), again
    learned = [_element(graph, node, _MEAN), _element(graph, node, _VARIANCE)]
    given = [*operands[:3], *learned, graph.constant(False), *operands[6:]]
    at_rest = Op("BatchNorm", {}, kind=make_op("BatchNorm").kind)
    again = graph.create(at_rest, given, node.type, scope=scope, sources=[node])
    return again, again


def _element(graph: Graph, node: Node, index: int) -> Node:
    """The element of a tuple, by a node that is there or by a new one."""
    for user in node.uses:
        if user.op.name == "TupleGetItem" and user.operand(1).literal == index:
            return user
    with graph.inserting_after(node):
        return graph.create("TupleGetItem", [node, graph.constant(index)], scope=node.scope, sources=[node])


def is_kept(item: Node, replaced: Collection[Value]) -> bool:
    """Whether a node is an element, but the first, of what a stand-in makes again: it stays."""
    return item.op.name == "TupleGetItem" and item.operand(0) in replaced and item.operand(1).literal != 0


def _takes_elements(node: Node) -> bool:
    """Whether a tuple is used by its elements alone."""
    return all(
        (user.op.name == "TupleGetItem" and isinstance(user.operand(1).literal, int)) or orders_only(user, i)
        for user, i in node.use_sites()
    )


def _masking(node: Node, parts: Mapping[Node, str]) -> Node | None:
    """The DropoutGrad that takes the mask of a Dropout in the backward part."""
    for item in node.uses:
        if item.op.name == "TupleGetItem" and item.operand(1).literal == _MASK:
            for user in item.uses:
                if user.op.name == "DropoutGrad" and user.operand(1) is item and parts.get(user) == BACKWARD:
                    return user
    return None


def _changes(user: Node, i: int, parts: Mapping[Node, str]) -> bool:
    """Whether the forward part may write a state in this use of it."""
    return parts.get(user) == FORWARD and (i in written_operands(user) or (user.op is CALL and has_token(user)))
