"""On CPU: optimizers work on float32 copies of float16 state, written back, where MindSpore would lose a write.

The CPU kernels of optimizers take float32, so MindSpore 2.10 puts casts around them. Where the state came to a function
as an argument it loses the way back: the state stays as it was, without an error. And its casts wait for nothing: where
something else writes the state first, they may read what was there before. Spelled out in the graph, the same casts
work.
"""

from __future__ import annotations

from collections import Counter

from ...ir.analysis.effects.effect_list import list_effects
from ...ir.analysis.effects.state_access import summarize
from ...ir.analysis.functions.calls import callees_first
from ...ir.builders.cast import cast
from ...ir.core.graph import Graph, Node, Value
from ...ir.core.predicates import written_operands
from ...ir.core.primitives import CPU, facts
from ...ir.core.types import DType, TensorType
from ...ir.core.wording import counted
from ...ir.rewrite.effects.editing import Effects
from .context import Context

_TAKES_HALF = frozenset({"AdamWeightDecay"})
"""Optimizers whose CPU kernel takes float16 state and float32 numbers as they come, so that nothing is cast."""


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and any(_to_widen(body) for body in graph.all_graphs())


def run(graph: Graph, context: Context) -> str:
    known = summarize(graph)
    widened = 0
    for function in [*callees_first(graph), graph]:
        chosen = _to_widen(function)
        if not chosen:
            continue
        fx = Effects(function, known)
        effects, fx.list = fx.list, []
        for effect in effects:
            if effect.node in chosen:
                _widen(fx, effect.node)
                widened += 1
            else:
                fx.list.append(effect)
        fx.commit()
    return f"{counted(widened, 'update')} of float16 state in float32"


def _to_widen(body: Graph) -> set[Node]:
    """The updates of float16 state in a function, or of state that the main graph also writes elsewhere."""
    found = {node for node in body if _updates_half(node)}
    if body.owner is not None or not found:
        return found
    writes = Counter(state for effect in list_effects(body).writes() for state in effect.writes)
    return {node for node in found if any(writes[node.operand(i)] > 1 for i in written_operands(node))}


def _is_half(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype is DType.FLOAT16


def _updates_half(node: Node) -> bool:
    if node.op.name in _TAKES_HALF or facts(node.op).gradient is None:
        return False
    return any(_is_half(node.operand(i)) for i in written_operands(node))


def _widen(fx: Effects, node: Node) -> None:
    """Appends to the effects: reads of the state, the update of their copies, writes of the state."""
    function = fx.graph
    states = {i: node.operand(i) for i in written_operands(node) if _is_half(node.operand(i))}
    for i in range(node.num_operands):
        value = node.operand(i)
        if _is_half(value):
            read = fx.load(value, initial=False) if i in states else value
            node.set_operand(i, cast(function, read, DType.FLOAT32))
    fx.adopt(node)
    for i, state in states.items():
        after = function.create("Depend", [node.operand(i), node])
        fx.append("Assign", [state, cast(function, after, DType.FLOAT16)])
