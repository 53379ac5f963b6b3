"""Effects in the order in which what they take is there."""

from __future__ import annotations

from collections.abc import Sequence

from ...analysis.cost.running_order import running_order
from ...analysis.effects.state_access import Effect
from ...core.graph import Graph, Node, Value
from ...core.types import is_monad


def by_readiness(graph: Graph, effects: Sequence[Effect]) -> list[Effect]:
    """The effects of ``graph``, those first whose operands are computed first when the graph runs. Effects that touch
    the same state, and those that print, keep their order.

    The chain of tokens makes a sequence of the list. A file has the updates of the first layers first, whose gradients
    the backward part computes last; in the file's order all gradients would be kept until then.
    """
    place = {node: at for at, node in enumerate(running_order(graph))}
    last: dict[Value, int] = {}
    printed = barrier = most = -1
    keys = []
    for effect in effects:
        operands = (v for v in effect.node.operands if isinstance(v, Node) and not is_monad(v.type))
        awaited = [barrier, *(place[v] for v in operands if v in place)]
        awaited += [last[state] for state in effect.touched if state in last]
        key = max([*awaited, printed] if effect.io else awaited)
        if effect.everything:
            key = barrier = max(key, most)
        if effect.io:
            printed = key
        for state in effect.touched:
            last[state] = key
        most = max(most, key)
        keys.append(key)
    return [effect for _, effect in sorted(zip(keys, effects, strict=True), key=lambda pair: pair[0])]
