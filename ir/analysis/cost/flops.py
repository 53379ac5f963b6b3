"""Estimated floating-point operations of a node: a multiply-add counts as two, an elementwise result as one an element.

Open dimensions count as 1. Meant for comparing graphs, not for predicting times.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ...core.graph import Node, Value
from ...core.op import CALL
from ...core.primitives import Family, facts, named
from ...core.types import TensorType, TupleType, Type, leaves

_FREE = named(Family.ORDER, Family.TUPLE, Family.CLOSURE, Family.COPY, Family.RESHAPE)


def estimated_flops(nodes: Iterable[Node]) -> int:
    return sum(map(_flops, nodes))


def flops_by_type(nodes: Iterable[Node]) -> dict[str, int]:
    """The same by the element type that a node computes in, most first: that of its first tensor of floats, else of its
    first tensor."""
    found: dict[str, int] = {}
    for node in nodes:
        count = _flops(node)
        if count:
            name = computes_in(node)
            found[name] = found.get(name, 0) + count
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))


def computes_in(node: Node) -> str:
    """The element type of a node's first operand or result of floats, else of its first; "" where it has no tensor."""
    values = [type_ for value in (*node.operands, node) for _, type_ in leaves(value.type)]
    types = [type_.dtype for type_ in values if isinstance(type_, TensorType)]
    return str(next((dtype for dtype in types if dtype.is_float), next(iter(types), "")))


def _flops(node: Node) -> int:
    known = facts(node.op)
    if node.op.name in _FREE or node.op is CALL or node.num_operands == 0:
        return 0
    data, weight = (node.operand(i) if i < node.num_operands else node for i in known.factors)
    match known.family:
        case Family.MATMUL:
            return 2 * _size(node.type) * _inner(node)
        case Family.AFFINE:
            return 2 * _size(node.type) * _shape(data)[-1]
        case Family.CONVOLUTION:
            return 2 * _size(node.type) * prod(_shape(weight)[1:])
        case Family.TRANSPOSED_CONVOLUTION:
            return 2 * _size(data.type) * prod(_shape(weight)[1:])
        case Family.FILTER_GRADIENT if isinstance(node.type, TensorType):
            return 2 * _size(data.type) * prod(node.type.shape[1:])
    return max(_size(node.type), *(_size(v.type) for v in node.operands))


def _inner(node: Node) -> int:
    shape = _shape(node.operand(0))
    transposed = node.num_operands > 2 and node.operand(2).literal is True
    return shape[-2] if transposed and len(shape) > 1 else shape[-1]


def _shape(value: Value) -> tuple[int, ...]:
    shape = value.type.shape if isinstance(value.type, TensorType) else ()
    return tuple(max(d, 1) for d in shape) or (1,)


def _size(type_: Type) -> int:
    if isinstance(type_, TupleType):
        return sum(map(_size, type_.elements))
    return prod(max(d, 1) for d in type_.shape) if isinstance(type_, TensorType) else 0
