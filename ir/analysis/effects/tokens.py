"""Where tokens stand: the operands of an effect that take one, and the uses of a value that only order."""

from __future__ import annotations

from ...core.graph import Node
from ...core.op import CALL, MAKE_TUPLE
from ...core.predicates import has_token
from ...core.types import is_monad
from ..functions.calls import targets


def token_slots(node: Node) -> list[tuple[Node, int]]:
    """Where the tokens of an effect stand: (node, operand index); several for a call of a Switch of Partials. A call
    of a closure that cannot be told takes its token itself."""
    if node.op.name == "Depend":
        return [(node, 1)]
    reached = targets(node) if node.op is CALL else None
    if reached is None and not has_token(node):
        return []
    if reached is None and (len(node._operands) == 1 or not is_monad(node._operands[-2].type)):
        return [(node, len(node._operands) - 1)]  # as nearly all have it
    holders = [node] if reached is None else [t.binder for t in reached]
    slots: dict[tuple[Node, int], None] = {}
    for holder in holders:
        i = holder.num_operands - 1
        while i >= 0 and is_monad(holder.operand(i).type):
            slots[holder, i] = None
            i -= 1
    return list(slots)


def orders_only(user: Node, i: int) -> bool:
    """Whether a use of a value merely waits for it: in a token, in what a Depend waits for, or in a tuple of these."""
    name = user.op.name
    if name in MAKE_TUPLE:
        return all(_waits(u, at) for u, at in user.use_sites())
    return _waits(user, i)


def _waits(user: Node, i: int) -> bool:
    return user.op.name == "UpdateState" or (user.op.name == "Depend" and i == 1)
