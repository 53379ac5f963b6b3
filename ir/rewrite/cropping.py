"""A padding that takes elements away, as a slice.

MindSpore's kernel of PadV3 on a CPU is right in its first run only where a width is negative: from the second on it
leaves some elements as they were in memory, and now and then it does not return (2.10). The gradient of each padding is
such a one, so a network that pads by ``ops.pad`` trains on wrong gradients, or stops for ever, in MindSpore itself too.
A slice takes the elements away here; what a padding adds besides, the kernel still adds.
"""

from __future__ import annotations

from ..core.attributes import TensorValue
from ..core.data import to_numpy
from ..core.graph import Graph, Node, tensor_type
from ..core.paddings import Width, widths_by_axis
from ..core.types import TensorType


def croppings(graph: Graph) -> list[Node]:
    """The paddings of a graph, not of its functions, that take elements away."""
    return [node for node in graph if node.op.name == "PadV3" and any(min(width) < 0 for width in _widths(node))]


def _widths(node: Node) -> list[Width]:
    """What a PadV3 of constants adds in front of each axis and behind it; nothing for any other."""
    if node.attributes.get("mode", "constant") != "constant":
        return []
    kind, given = node.operand(0).type, node.operand(1).literal
    if isinstance(given, TensorValue):
        given = tuple(map(int, to_numpy(given.type, given.data).ravel()))
    if not isinstance(kind, TensorType) or not isinstance(given, tuple) or not all(isinstance(w, int) for w in given):
        return []
    widths = widths_by_axis(node, given, len(kind.shape))
    # Of an axis of open size (the batch) nothing is taken away in practice, and how much stays could not be said.
    return [] if any(size < 0 and min(width) < 0 for size, width in zip(kind.shape, widths, strict=True)) else widths


def crop(node: Node) -> None:
    """Puts a slice in the place of a padding, of the same part of the network; with a padding behind it where it adds
    elements too."""
    graph, source, widths = node.home, node.operand(0), _widths(node)
    given = tensor_type(source)
    begin = tuple(max(0, -before) for before, _ in widths)
    # An axis of open size stays as it is: -1, in a shape as in a size.
    size = tuple(n if n < 0 else n + min(0, a) + min(0, b) for n, (a, b) in zip(given.shape, widths, strict=True))
    kept = TensorType(given.dtype, size)
    bounds = [graph.constant(begin), graph.constant(size)]
    added = tuple(max(0, width) for pair in reversed(widths) for width in pair)
    with graph.inserting_before(node):
        taken = graph.create("Slice", [source, *bounds], kept, scope=node.scope, sources=[node])
        taken.primal = node.primal
        if any(added):
            attributes = {**node.attributes, "paddings_contiguous": True}
            operands = [taken, graph.constant(added), *node.operands[2:]]
            taken = graph.create("PadV3", operands, node.type, attributes=attributes, scope=node.scope, sources=[node])
            taken.primal = node.primal
    node.replace_uses(taken)
    graph.erase(node)
