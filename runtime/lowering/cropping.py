"""On CPU: a padding that takes elements away is a slice.

The kernel of PadV3 is right in its first run only where a width is negative: from the second on it leaves some elements
as they were in memory, and now and then it does not return (MindSpore 2.10). The gradient of each padding is such a
one, so a network that pads by ``ops.pad`` trains on wrong gradients, or stops for ever, in MindSpore itself too. A
slice takes the elements away here; what a padding adds besides, the kernel still adds.
"""

from __future__ import annotations

from ...ir.core.attributes import TensorValue
from ...ir.core.data import to_numpy
from ...ir.core.graph import Graph, Node, tensor_type
from ...ir.core.paddings import Width, widths_by_axis
from ...ir.core.primitives import CPU
from ...ir.core.types import TensorType
from ...ir.core.wording import counted
from .context import Context


def applies(graph: Graph, context: Context) -> bool:
    return context.target == CPU and any(_crops(node) for part in graph.all_graphs() for node in part)


def run(graph: Graph, context: Context) -> str:
    found = [(part, node) for part in graph.all_graphs() for node in part if _crops(node)]
    for part, node in found:
        with part.inserting_before(node):
            _slice(part, node)
    return f"{counted(len(found), 'padding')} by slices"


def _crops(node: Node) -> bool:
    return any(min(width) < 0 for width in _widths(node))


def _widths(node: Node) -> list[Width]:
    """What a PadV3 of constants adds in front of each axis and behind it; nothing for any other node."""
    if node.op.name != "PadV3" or node.attributes.get("mode", "constant") != "constant":
        return []
    kind, given = node.operand(0).type, node.operand(1).literal
    if isinstance(given, TensorValue):
        given = tuple(map(int, to_numpy(given.type, given.data).ravel()))
    if not isinstance(kind, TensorType) or not isinstance(given, tuple) or not all(isinstance(w, int) for w in given):
        return []
    widths = widths_by_axis(node, given, len(kind.shape))
    # Of an axis of open size (the batch) nothing is taken away in practice, and how much stays could not be said.
    return [] if any(size < 0 and min(width) < 0 for size, width in zip(kind.shape, widths, strict=True)) else widths


def _slice(graph: Graph, node: Node) -> None:
    source, widths = node.operand(0), _widths(node)
    given = tensor_type(source)
    begin = tuple(max(0, -before) for before, _ in widths)
    # An axis of open size stays as it is: -1, in a shape as in a size.
    size = tuple(n if n < 0 else n + min(0, a) + min(0, b) for n, (a, b) in zip(given.shape, widths, strict=True))
    kept = TensorType(given.dtype, size)
    bounds = [graph.constant(begin), graph.constant(size)]
    taken: Node = graph.create("Slice", [source, *bounds], kept, scope=node.scope, sources=[node])
    added = tuple(max(0, width) for pair in reversed(widths) for width in pair)
    if any(added):
        attributes = {**node.attributes, "paddings_contiguous": True}
        operands = [taken, graph.constant(added), *node.operands[2:]]
        taken = graph.create("PadV3", operands, node.type, attributes=attributes, scope=node.scope, sources=[node])
    node.replace_uses(taken)
    graph.erase(node)
