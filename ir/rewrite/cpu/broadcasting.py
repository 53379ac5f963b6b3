"""On CPU: arithmetic whose kernels would keep the place of every element does without.

A kernel that broadcasts an operand keeps, for each element of its result, the places of both operands: 16 bytes an
element, for as long as the graph exists. Div keeps them always, and is ten times slower than RealDiv. So a big operand
is repeated by Tile first, and Div of floats becomes RealDiv. The bits are the same (docs/memory.md).
"""

from __future__ import annotations

from ...analysis.cost.kernel_memory import PLACES_TO_BROADCAST
from ...core.attributes import scalar_tensor
from ...core.graph import Constant, Graph, Node, Value
from ...core.primitives import CPU
from ...core.types import TensorType
from ...core.wording import counted
from .target import Target

SMALLEST = 1 << 16
"""Elements of a result below which places take less than a megabyte."""
_REPEATED = PLACES_TO_BROADCAST - {"MaskedFill"}


def applies(graph: Graph, context: Target) -> bool:
    return context.target == CPU and any(is_lowered(n) for part in graph.all_graphs() for n in part)


def is_lowered(node: Node) -> bool:
    """Whether the lowering changes a node, which then keeps no places."""
    return _is_slow(node) or bool(_repeats(node))


def run(graph: Graph, context: Target) -> str:
    found = [(part, n) for part in graph.all_graphs() for n in part if is_lowered(n)]
    for part, node in found:
        if _is_slow(node):
            node = _divided(part, node)
        for i, multiples in _repeats(node):
            with part.inserting_before(node):
                repeated = part.create(
                    "Tile", [node.operand(i), part.constant(multiples)], node.type, scope=node.scope, sources=[node]
                )
            node.set_operand(i, repeated)
    graph.sort()
    return f"{counted(len(found), 'operation')} without lists of places"


def _is_slow(node: Node) -> bool:
    """Whether a node is a division of floats by Div, big enough to matter."""
    return node.op.name in ("Div", "Divs") and _is_big(node) and all(_divides(v, node) for v in node.operands)


def _divides(value: Value, node: Node) -> bool:
    """Whether a value is a tensor of the result's float type, or a number that the compiler knows."""
    if isinstance(value.type, TensorType) and isinstance(node.type, TensorType):
        return value.type.dtype is node.type.dtype and node.type.dtype.is_float
    return isinstance(value, Constant) and isinstance(value.value, int | float) and not isinstance(value.value, bool)


def _divided(graph: Graph, node: Node) -> Node:
    by = node.operand(1)
    if isinstance(by, Constant) and not isinstance(by.type, TensorType):
        assert isinstance(node.type, TensorType)
        by = graph.constant(scalar_tensor(str(node.type.dtype), float(by.value)))
    with graph.inserting_before(node):
        made = graph.create("RealDiv", [node.operand(0), by], node.type, scope=node.scope, sources=[node])
    graph.substitute(node, made)
    return made


def _repeats(node: Node) -> list[tuple[int, tuple[int, ...]]]:
    """The operands of a big operation to repeat, each with how often along each axis. One that would be repeated along
    axes in the middle is left: Tile takes longer there than the kernel does."""
    if node.op.name not in _REPEATED or not _is_big(node) or not isinstance(node.type, TensorType):
        return []
    found = []
    for i, operand in enumerate(node.operands[:2]):
        if not isinstance(operand.type, TensorType) or operand.type.size == 1 or operand.type.shape == node.type.shape:
            continue
        if operand.type.dtype is not node.type.dtype or not operand.type.is_static:
            return []
        shape = (1,) * (len(node.type.shape) - len(operand.type.shape)) + operand.type.shape
        multiples = tuple(all_ // own for all_, own in zip(node.type.shape, shape, strict=True))
        along = [axis for axis, times in enumerate(multiples) if times > 1]
        leading = along == list(range(len(along)))
        trailing = along == list(range(len(multiples) - len(along), len(multiples)))
        if not (leading or trailing):
            return []
        found.append((i, multiples))
    return found


def _is_big(node: Node) -> bool:
    kind = node.type
    return isinstance(kind, TensorType) and kind.is_static and kind.size >= SMALLEST
