"""On CPU: zeros that big states are cleared with are computed where they are needed.

MindSpore folds ZerosLike of a known shape into a constant and holds it as long as the graph: accumulators that are
cleared so cost their memory twice. Spread from a number that it cannot know, the zeros exist while one state is
cleared. That number is whether an element is less than itself, 0 also for infinities and NaN.
"""

from __future__ import annotations

from math import prod

from ...analysis.effects.tokens import orders_only
from ...builders.cast import cast
from ...core.graph import Graph, Node, Value
from ...core.inference import infer
from ...core.primitives import CPU
from ...core.types import DType, TensorType
from ...core.wording import counted
from .target import Target

SMALLEST = 4096
"""Elements of a tensor below which its zeros may be held."""


def applies(graph: Graph, context: Target) -> bool:
    return context.target == CPU and any(_is_cleared(node) for node in graph.all_nodes())


def run(graph: Graph, context: Target) -> str:
    computed = 0
    waiting: dict[Node, None] = {}
    for part in graph.all_graphs():
        zeros: dict[DType, Value] = {}
        for node in [n for n in part if _is_cleared(n)]:
            source = node.operand(0)
            assert isinstance(source.type, TensorType)
            type_ = TensorType(source.type.dtype, source.type.shape)
            with part.inserting_before(node):
                zero = zeros.get(type_.dtype)
                if zero is None:
                    zero = zeros[type_.dtype] = _zero(part, source, type_)
                spread = part.create("BroadcastTo", [zero, part.constant(type_.shape)], type_)
            for user, i in node.use_sites():
                # Who merely waits, waits for what reads the state: the zeros need not be there by then.
                user.set_operand(i, spread if user.op.name == "Assign" else zero)
                if user.op.name == "MakeTuple":
                    waiting[user] = None
            part.erase(node)
            computed += 1
    for user in waiting:
        user.type = infer(user.op, user.operands)
    return f"zeros of {counted(computed, 'state')} computed"


def _is_cleared(node: Node) -> bool:
    """Whether a node is the zeros that a state is cleared with, and those alone."""
    type_ = node.type
    return (
        node.op.name == "ZerosLike"
        and isinstance(type_, TensorType)
        and type_.is_static
        and type_.dtype in (DType.FLOAT32, DType.FLOAT16)
        and prod(type_.shape) >= SMALLEST
        and all(user.op.name == "Assign" or orders_only(user, i) for user, i in node.use_sites())
    )


def _zero(graph: Graph, source: Value, type_: TensorType) -> Value:
    """A zero of one element that depends on the first element of ``source``."""
    rank = len(type_.shape)
    first = graph.create(
        "Slice",
        [source, graph.constant((0,) * rank), graph.constant((1,) * rank)],
        TensorType(type_.dtype, (1,) * rank),
    )
    one = graph.create("Reshape", [first, graph.constant((1,))], TensorType(type_.dtype, (1,)))
    less = graph.create("Less", [one, one])
    return cast(graph, less, type_.dtype)
