"""How products of matrices read their operands, and what turns a matrix."""

from __future__ import annotations

from .graph import Node, Value
from .primitives import Family, facts
from .types import TensorType


def reads_turned(node: Node) -> tuple[bool, bool] | None:
    """Of a product of matrices, alone or in equal stacks, which operands it reads transposed; None of other nodes."""
    if facts(node.op).family is not Family.MATMUL or not isinstance(node.type, TensorType):
        return None
    shapes = [v.type.shape for v in node.operands[:2] if isinstance(v.type, TensorType)]
    if len(shapes) < 2 or any(len(shape) < 2 or shape[:-2] != node.type.shape[:-2] for shape in shapes):
        return None
    flags = [node.operand(i).literal if i < node.num_operands else False for i in (2, 3)]
    told = all(isinstance(flag, bool) for flag in flags) and not node.op.attributes.get("transpose_a")
    return (flags[0] is True, flags[1] is True) if told and not node.op.attributes.get("transpose_b") else None


def transposed(value: Value) -> Value | None:
    """What a value is with its last two axes exchanged; None where it is not told to be that of anything."""
    if not isinstance(value, Node) or facts(value.op).family is not Family.TRANSPOSE or value.num_operands < 2:
        return None
    axes = value.operand(1).literal
    if not isinstance(axes, tuple) or len(axes) < 2 or not all(isinstance(axis, int) for axis in axes):
        return None
    *stay, second, first = (axis % len(axes) for axis in axes)
    return value.operand(0) if [*stay, first, second] == list(range(len(axes))) else None
