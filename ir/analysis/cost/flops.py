"""Estimated floating-point operations of a node: a multiply-add counts as two, an elementwise result as one an element.

Open dimensions count as 1. Meant for comparing graphs, not for predicting times.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ...core.graph import Constant, Node, Value
from ...core.op import CALL
from ...core.types import TensorType, TupleType, Type

_FREE = frozenset({
    "Load", "Depend", "UpdateState", "MakeTuple", "TupleGetItem", "Partial", "Switch", "Reshape", "ExpandDims",
    "Squeeze", "Flatten", "TensorMove", "Identity",
})  # fmt: skip
FORWARD_CONVOLUTIONS = frozenset({"Conv2D", "Conv3D", "Convolution", "DepthwiseConv2dNative"})
INPUT_GRADIENTS = frozenset({"Conv2DBackpropInput", "Conv3DBackpropInput", "Conv2DTranspose", "Conv3DTranspose"})
FILTER_GRADIENTS = frozenset({"Conv2DBackpropFilter", "Conv3DBackpropFilter"})


def estimated_flops(nodes: Iterable[Node]) -> int:
    return sum(map(_flops, nodes))


def _flops(node: Node) -> int:
    name = node.op.name
    if name in _FREE or node.op is CALL or node.num_operands == 0:
        return 0
    if name in ("MatMul", "BatchMatMul", "MatMulExt", "BatchMatMulExt"):
        return 2 * _size(node.type) * _inner(node)
    if name == "Dense":
        return 2 * _size(node.type) * _shape(node.operand(1))[-1]
    if name in FORWARD_CONVOLUTIONS:
        return 2 * _size(node.type) * prod(_shape(node.operand(1))[1:])
    if name in INPUT_GRADIENTS:
        return 2 * _size(node.operand(0).type) * prod(_shape(node.operand(1))[1:])
    if name in FILTER_GRADIENTS and isinstance(node.type, TensorType):
        return 2 * _size(node.operand(0).type) * prod(node.type.shape[1:])
    return max(_size(node.type), *(_size(v.type) for v in node.operands))


def _inner(node: Node) -> int:
    shape = _shape(node.operand(0))
    transposed = node.operand(2) if node.num_operands > 2 else None
    flipped = isinstance(transposed, Constant) and transposed.value is True and len(shape) > 1
    return shape[-2] if flipped else shape[-1]


def _shape(value: Value) -> tuple[int, ...]:
    shape = value.type.shape if isinstance(value.type, TensorType) else ()
    return tuple(max(d, 1) for d in shape) or (1,)


def _size(type_: Type) -> int:
    if isinstance(type_, TupleType):
        return sum(map(_size, type_.elements))
    return prod(max(d, 1) for d in type_.shape) if isinstance(type_, TensorType) else 0
