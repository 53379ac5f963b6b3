"""On CPU: states that a graph clears behind all that reads them are cleared by the session, when the graph has run.

MindSpore clears by a kernel that makes zeros and another that copies them: for the accumulators of a ResNet-18, 45 MB,
that took 8.4 ms a cycle, the update itself 10.7. The memory of a state is the host's, which fills it in 1.1 ms.

A first micro-batch that assigns what the others add would save as much. But it is a third graph, of forward and
backward: for a ResNet-18 0.3 s of compilation, and 104 MB that MindSpore's kernels keep as long as they exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from ...analysis.effects.tokens import orders_only
from ...core.graph import Graph, Node, State, Value, tensor_type
from ...core.primitives import CPU
from ...core.types import DType, TensorType
from ...core.walk import carried_operands, walk
from ...core.wording import counted
from ..effects.editing import Effects
from .target import Target


class Host(Target, Protocol):
    """Whoever runs the graphs. ``cleared``: by graph, the states to clear when it has run."""

    @property
    def cleared(self) -> dict[str, list[str]]: ...


def applies(graph: Graph, context: Host) -> bool:
    return context.target == CPU and any(map(_clears, graph))


def run(graph: Graph, context: Host) -> str:
    fx = Effects(graph)
    cleared = _cleared(graph, fx)
    if not cleared:
        return ""
    fx.drop([effect for effect in fx.list if effect.node in cleared])
    fx.commit()
    graph.forget_unused_states()
    context.cleared[graph.name] = [state.name for state in cleared.values()]
    return f"{counted(len(cleared), 'state')} cleared by the session"


def _cleared(graph: Graph, fx: Effects) -> dict[Node, State]:
    """What clears a state that nothing touches any more."""
    found: dict[Node, State] = {}
    touched = set(sharing_memory([graph.result]))
    for effect in reversed(fx.list):
        if effect.everything:
            break
        node = effect.node
        if _clears(node):
            state = node.operand(0)
            if state not in touched and all(orders_only(user, i) for user, i in node.use_sites()):
                assert isinstance(state, State)
                found[node] = state
        touched |= effect.touched
    return dict(reversed(found.items()))


def _clears(node: Node) -> bool:
    """Whether a node writes zeros to a state, of a type that numpy knows."""
    if node.op.name != "Assign":
        return False
    state, value = node.operands[:2]
    zeros = isinstance(value, Node) and value.op.name == "ZerosLike"
    return zeros and isinstance(state, State) and tensor_type(state).dtype is not DType.BFLOAT16


def sharing_memory(results: Iterable[Value]) -> Iterator[Value]:
    """What results may share their memory with: what they are computed from without a change of their number of
    elements, which MindSpore may have found to be no change at all."""

    def sources(value: Value) -> list[Value]:
        size = _size(value)
        return [v for v in carried_operands(value) if size is None or _size(v) in (None, size)]

    return walk(results, sources)


def _size(value: Value) -> int | None:
    return value.type.size if isinstance(value.type, TensorType) and value.type.is_static else None
