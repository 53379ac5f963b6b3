"""On CPU, with a seed: what random nodes draw comes in as inputs, so that a saved state can say where they stand.

MindSpore's random kernels keep a generator that nothing reads or sets (MindSpore 2.10, by experiment: one stream for
each node, whose seeds count only when the graph is compiled). Masks drop each element as often as MindSpore's, but not
the same ones. Elsewhere masks have other forms, and would have to be copied to the device.
"""

from __future__ import annotations

from ...ir.builders.cast import cast
from ...ir.core.attributes import scalar_tensor
from ...ir.core.graph import Constant, Graph, Node
from ...ir.core.predicates import is_random
from ...ir.core.primitives import CPU
from ...ir.core.types import DType, TensorType, TupleType, is_monad
from ...ir.core.wording import counted
from .context import Context
from .philox import MASKS, NUMBERS, Draw

_TYPES = (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64)


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and context.seed is not None and bool(_drawing(graph))


def run(graph: Graph, context: Context) -> str:
    found = _drawing(graph)
    for node, draw in found:
        _replace(graph, node, draw)
    context.draws[graph.name] = [draw for _, draw in found]
    return f"{counted(len(found), 'random node')} drawn by the session"


def _drawing(graph: Graph) -> list[tuple[Node, Draw]]:
    """The random nodes whose draws are known and of fixed shape."""
    nodes = [node for node in graph if is_random(node)]
    found = [(node, _draw_of(node, serial)) for serial, node in enumerate(nodes)]
    return [(node, draw) for node, draw in found if draw is not None]


def _draw_of(node: Node, serial: int) -> Draw | None:
    type_ = node.type
    if any(is_monad(operand.type) for operand in node.operands):
        return None
    if node.op.name in NUMBERS:
        fixed = isinstance(type_, TensorType) and min(type_.shape, default=0) >= 0 and type_.dtype is DType.FLOAT32
        return Draw(node.op.name, type_, serial) if fixed and isinstance(type_, TensorType) else None
    if node.op.name not in MASKS or not isinstance(type_, TupleType) or len(type_.elements) != 2:
        return None
    out, mask = type_.elements
    if not isinstance(out, TensorType) or not isinstance(mask, TensorType) or out.dtype not in _TYPES:
        return None
    if mask.shape != out.shape or min(mask.shape, default=0) < 0 or len(mask.shape) < MASKS[node.op.name]:
        return None
    keep = node.op.attributes.get("keep_prob")
    if keep is None and node.num_operands > 1 and isinstance(node.operand(1), Constant):
        keep = getattr(node.operand(1), "value", None)
    return Draw(node.op.name, mask, serial, keep) if isinstance(keep, float) and 0 < keep <= 1 else None


def _replace(graph: Graph, node: Node, draw: Draw) -> None:
    """x · mask / keep, as MindSpore's kernels compute it: in float32 at least."""
    import numpy as np

    drawn = graph.add_input(graph.fresh_name(f"drawn_{draw.serial}"), draw.type)
    if draw.op in NUMBERS:
        graph.substitute(node, drawn)
        return
    assert isinstance(node.type, TupleType)
    out = node.type.elements[0]
    assert isinstance(out, TensorType)
    wide = DType.FLOAT64 if out.dtype is DType.FLOAT64 else DType.FLOAT32
    with graph.inserting_before(node):
        x, mask = (cast(graph, value, wide, scope=node.scope) for value in (node.operand(0), drawn))
        scale = graph.constant(scalar_tensor(wide.value, float(np.float32(1 / draw.keep))))
        kept = graph.create("Mul", [x, mask], scope=node.scope, sources=[node])
        scaled = graph.create("Mul", [kept, scale], scope=node.scope, sources=[node])
        both = graph.create("MakeTuple", [cast(graph, scaled, out.dtype, scope=node.scope), drawn], scope=node.scope)
    graph.substitute(node, both)
