"""On CPU: an average of weights moves by two kernels in the place of four.

s · k + x · t takes two products, a sum and a copy, which read and write memory nine times over. ApplyMomentum computes
s · k + g in place, whatever else it does: with g = x · t, of which it changes a copy that nobody reads by 0 · s, it
leaves the same bits. On processors whose compilers join a product and a sum in one rounding (all but x86) it is left
alone.
"""

from __future__ import annotations

import platform

from ...ir.analysis.effects.state_access import summarize
from ...ir.analysis.effects.tokens import orders_only
from ...ir.core.attributes import scalar_tensor
from ...ir.core.graph import Graph, Node, Value
from ...ir.core.primitives import CPU
from ...ir.core.types import DType, TensorType
from ...ir.core.wording import counted
from ...ir.rewrite.effects.editing import Effects
from .context import Context

_NUMBER = TensorType(DType.FLOAT32, ())
_ROUNDS_TWICE = platform.machine() in ("x86_64", "AMD64")


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and _ROUNDS_TWICE and any(_moves(body) for body in graph.all_graphs())


def run(graph: Graph, context: Context) -> str:
    known, moved = summarize(graph), 0
    for body in graph.all_graphs():
        chosen = _moves(body)
        if not chosen:
            continue
        fx = Effects(body, known)
        old = [e for e in fx.list if e.node in chosen]
        none = body.constant(scalar_tensor("float32", 0.0))
        for effect in old:
            kept, share = chosen[effect.node]
            state, scope = effect.node.operand(0), effect.node.scope
            operands = [share, state, none, share, kept, fx.first_token()]
            fx.adopt(body.create("ApplyMomentum", operands, share.type, scope=scope))
            fx.list[fx.list.index(effect)] = fx.list.pop()
        fx.drop(old)
        fx.commit()
        moved += len(chosen)
    return f"{counted(moved, 'average')} moved in place"


def _moves(body: Graph) -> dict[Node, tuple[Value, Node]]:
    """The writes of s · k + x · t into a state s, each with k and the second product."""
    found = {}
    for node in body:
        mean = _only_for(node, 1, "Add") if node.op.name == "Assign" else None
        kept, share = (_only_for(mean, i, "Mul") for i in (0, 1)) if mean is not None else (None, None)
        if kept is None or share is None or share.type != kept.type:
            continue
        old, factor = kept.operands
        loads = isinstance(old, Node) and old.op.name == "Load" and old.operand(0) is node.operand(0)
        if loads and factor.type == _NUMBER:
            found[node] = factor, share
    return found


def _only_for(node: Node, i: int, name: str) -> Node | None:
    """An operand that is made by a primitive and that nothing else takes."""
    value = node.operand(i)
    if not isinstance(value, Node) or value.op.name != name:
        return None
    takers = [user for user, at in value.use_sites() if not orders_only(user, at)]
    return value if takers == [node] else None
