"""What kernels of MindSpore keep for themselves on CPU, beside their operands and results, as long as they exist.

Measured kernel by kernel (``python -m benchmarks.kernel_memory``, MindSpore 2.10): the bytes that malloc has given out
after a graph of one node ran, less those before.

- Arithmetic that broadcasts keeps, for each element of the result, the places of both operands: 16 bytes. Some
  primitives keep them always. SoftmaxBackward becomes a subtraction that broadcasts.
- Transpose keeps the place of each element in a list that grows by doubling.
- oneDNN's gradient of a convolution's filter splits the batch among threads and keeps one filter for each.
"""

from __future__ import annotations

from math import prod

from ...core.graph import Node
from ...core.primitives import Family, facts
from ...core.types import TensorType

PLACE = 8
"""Bytes of the place of an element."""
_ALWAYS_PLACES = frozenset({"Div", "Divs", "FloorDiv", "Mod", "FloorMod", "DivNoNan", "SquaredDifference", "Atan2"})
PLACES_TO_BROADCAST = frozenset({"Add", "Sub", "Mul", "RealDiv", "Pow", "Xlogy", "Xdivy", "MaskedFill"})
_BECOMES_BROADCAST = frozenset({"SoftmaxBackward"})


def kernel_memory(node: Node, cores: int) -> int:
    """Bytes that the kernel of a node keeps. ``cores``: those that the process may use."""
    name, result = node.op.name, node.type
    if not isinstance(result, TensorType):
        return 0
    if name in _ALWAYS_PLACES or name in _BECOMES_BROADCAST or (name in PLACES_TO_BROADCAST and _broadcasts(node)):
        return 2 * PLACE * _size(result)
    match facts(node.op).family:
        case Family.TRANSPOSE if not facts(node.op).view:
            return PLACE * (1 << max(_size(result) - 1, 0).bit_length())
        case Family.FILTER_GRADIENT:
            return cores * result.nbytes
    return 0


def _broadcasts(node: Node) -> bool:
    """Whether an operand that is no single number has another shape than the result."""
    shapes = [v.type.shape for v in node.operands if isinstance(v.type, TensorType) and _size(v.type) > 1]
    return isinstance(node.type, TensorType) and any(shape != node.type.shape for shape in shapes)


def _size(type_: TensorType) -> int:
    return prod(max(d, 1) for d in type_.shape)
