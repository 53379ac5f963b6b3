"""On CPU: a weight in half precision is cast where it is used.

MindSpore starts a cast as soon as it can, and a weight's at the start of the step. Where a kernel computes in float32
(:mod:`.half_kernels`), MindSpore casts the weight back at once too, for each use. So all weights would be there twice
more in float32 until the last of them is used. Here each use has a cast of its own, which waits for the other operand.
The bits are the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.effects.tokens import orders_only
from ...builders.cast import cast
from ...core.graph import Graph, Node, State
from ...core.primitives import CPU
from ...core.types import DType, TensorType
from ...core.walk import through
from ...core.wording import counted
from ..effects.editing import Effects
from .target import Target

SMALLEST = 1 << 14
"""Elements of a weight below which its casts may be there all the time."""


def applies(graph: Graph, context: Target) -> bool:
    return context.target == CPU and any(True for part in graph.all_graphs() for _ in _uses(part))


def run(graph: Graph, context: Target) -> str:
    moved = 0
    for part in graph.all_graphs():
        uses = list(_uses(part))
        if not uses:
            continue
        effects = Effects(part)
        for user, i, other in uses:
            early = user.operand(i)
            assert isinstance(early, Node)
            with part.inserting_before(user):
                read = early.operand(0)
                late = part.create("Depend", [read, other], read.type, scope=early.scope, sources=[early])
                user.set_operand(i, cast(part, late, DType.FLOAT16, scope=early.scope))
        for early in dict.fromkeys(node for node in part if _is_cast_of_weight(node)):
            if all(orders_only(user, i) for user, i in early.use_sites()):
                early.replace_uses(early.operand(0))
                part.erase(early)
        effects.commit()
        moved += len(uses)
    return f"{counted(moved, 'use')} of weights cast late"


def _uses(graph: Graph) -> Iterator[tuple[Node, int, Node]]:
    """Who takes a weight in half precision, as which operand, and what else it takes that is computed."""
    for node in graph:
        if _is_cast_of_weight(node):
            for user, i in node.use_sites():
                others = (v for v in user.operands if isinstance(v, Node) and v is not node and _is_computed(v))
                other = next(others, None)
                if other is not None and not orders_only(user, i):
                    yield user, i, other


def _is_cast_of_weight(node: Node) -> bool:
    kind = node.type
    return (
        node.op.name == "Cast"
        and isinstance(kind, TensorType)
        and kind.dtype is DType.FLOAT16
        and kind.size >= SMALLEST
        and isinstance(node.operand(0), Node)
        and isinstance(through(node.operand(0), ("Load",)), State)
    )


def _is_computed(value: Node) -> bool:
    return isinstance(value.type, TensorType) and not isinstance(through(value, ("Load", "Cast", "Depend")), State)
