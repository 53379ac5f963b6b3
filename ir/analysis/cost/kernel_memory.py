"""What kernels of MindSpore keep for themselves on CPU, beside their operands and results, as long as they exist.

Measured kernel by kernel (``python -m benchmarks.kernel_memory``, MindSpore 2.10): the bytes that malloc has given out
after a graph ran, less those before.

- Arithmetic that broadcasts keeps, for each element of the result, the places of both operands: 16 bytes. Some
  primitives keep them always, sums and products in half precision too. SoftmaxBackward becomes two products and a
  subtraction that broadcasts.
- Transpose keeps the place of each element in a list that grows by doubling.
- oneDNN's gradient of a convolution's filter splits the batch among threads and keeps one filter for each.
- oneDNN's product of matrices copies blocks of an operand for each thread, where it is transposed or wide.
- A recurrent layer keeps its gates and states for its gradient, and the code that oneDNN makes for it.
"""

from __future__ import annotations

from math import prod

from ...core.graph import Node
from ...core.primitives import Family, facts, named
from ...core.types import DType, TensorType, TupleType

PLACE = 8
"""Bytes of the place of an element."""
_ALWAYS_PLACES = frozenset({"Div", "Divs", "FloorDiv", "Mod", "FloorMod", "DivNoNan", "SquaredDifference", "Atan2"})
PLACES_TO_BROADCAST = frozenset({"Add", "Sub", "Mul", "RealDiv", "Pow", "Xlogy", "Xdivy", "MaskedFill"})
PLACES_IN_HALF = named(Family.SUM, Family.DIFFERENCE, Family.PRODUCT) | {"InplaceAddExt"}
PLACES_IN_HALF -= {"AccumulateNV2", "AddN", "AddScalar", "SubScalar"}
_INNER, _ROWS, _COLUMNS, _WIDE = 512, 128, 64, 1024
"""The blocks of oneDNN's product: at most so much of the inner axis, so many rows of the first operand (twice as many
of a tall one), so many columns of the second. From ``_WIDE`` on a matrix is tall, or wide."""
_RECURRENT_CODE, _RECURRENT_VALUES = 2 << 20, 13
"""Bytes of a recurrent layer, and the numbers that it keeps for each of its result."""


def kernel_memory(node: Node, cores: int) -> int:
    """Bytes that the kernel of a node keeps. ``cores``: those that the process may use."""
    name, result, family = node.op.name, node.type, facts(node.op).family
    if family is Family.RECURRENT and isinstance(result, TupleType) and isinstance(result.elements[0], TensorType):
        return _RECURRENT_CODE + _RECURRENT_VALUES * result.elements[0].nbytes
    if not isinstance(result, TensorType):
        return 0
    in_half = result.dtype is DType.FLOAT16
    if name == "SoftmaxBackward":
        return 2 * PLACE * _size(result) * (3 if in_half else 1)
    if name in _ALWAYS_PLACES or (name in PLACES_IN_HALF and in_half):
        return 2 * PLACE * _size(result)
    if name in PLACES_TO_BROADCAST and _broadcasts(node):
        return 2 * PLACE * _size(result)
    if name == "MatMul" and len(result.shape) == 2:
        return cores * _blocks(node, result)
    match family:
        case Family.TRANSPOSE if not facts(node.op).view:
            return PLACE * (1 << max(_size(result) - 1, 0).bit_length())
        case Family.FILTER_GRADIENT:
            return cores * result.nbytes
    return 0


def _blocks(node: Node, result: TensorType) -> int:
    """The bytes that one thread copies of the operands of a product of two matrices."""
    flags = [node.operand(i).literal is True if i < node.num_operands else False for i in (2, 3)]
    operand = node.operand(0).type
    inner = operand.shape[0 if flags[0] else -1] if isinstance(operand, TensorType) and operand.shape else 1
    rows, columns = (max(size, 1) for size in result.shape)
    copied = min(rows, _ROWS * (1 + (rows >= _WIDE))) if flags[0] else 0
    copied += min(columns, _COLUMNS) if flags[1] or columns >= _WIDE else 0
    return copied * min(max(inner, 1), _INNER) * result.dtype.itemsize


def _broadcasts(node: Node) -> bool:
    """Whether an operand that is no single number has another shape than the result."""
    shapes = [v.type.shape for v in node.operands if isinstance(v.type, TensorType) and _size(v.type) > 1]
    return isinstance(node.type, TensorType) and any(shape != node.type.shape for shape in shapes)


def _size(type_: TensorType) -> int:
    return prod(max(d, 1) for d in type_.shape)
