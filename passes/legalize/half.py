"""Half precision for which the target has kernels of float32 alone: computed in float32, between casts, as MindSpore
itself does on a CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

from ...ir.analysis.targets import Item, item, operand_types, place_of
from ...ir.builders.cast import cast
from ...ir.core.graph import Node, Value
from ...ir.core.predicates import is_effect, written_operands
from ...ir.core.types import DType, TensorType, TupleType, Type
from .replacements import SCOPE


def widenable(node: Node, target: str) -> bool:
    """Whether the target has the kernel for float32 that it lacks for float16. Nothing may be written: a cast has
    memory of its own."""
    if is_effect(node) or written_operands(node):
        return False
    types, result = operand_types(node), item(node.type)
    if any(isinstance(part, tuple) for part in types):
        return False
    if isinstance(result, tuple) and any(user.op.name != "TupleGetItem" for user in node.users):
        return False
    wider = tuple(_wider(part) for part in types)
    return wider != types and place_of(node.op.name, wider, _wider(result), target) == target


def widen(node: Node) -> None:
    """Makes the node compute in float32."""
    with node.home.inserting_before(node):
        for i, value in enumerate(node.operands):
            if _is_half(value.type):
                node.set_operand(i, _cast(node, value, DType.FLOAT32))
    for result in [node] if isinstance(node.type, TensorType) else node.users:
        if _is_half(result.type):
            _narrow(result)
    node.type = _wide(node.type)


def _narrow(result: Node) -> None:
    """Makes it float32, and those who use it get it as float16, as before."""
    users = list(result.use_sites())
    result.type = _wide(result.type)
    with result.home.inserting_after(result):
        half = _cast(result, result, DType.FLOAT16)
    for user, i in users:
        user.set_operand(i, half)


def _cast(node: Node, value: Value, dtype: DType) -> Value:
    """A cast that belongs to the part of the network that ``node`` belongs to."""
    new = cast(node.home, value, dtype, scope=node.scope or SCOPE)
    assert isinstance(new, Node)
    new.primal = node.primal
    return new


def _is_half(type_: Type) -> TypeGuard[TensorType]:
    return isinstance(type_, TensorType) and type_.dtype is DType.FLOAT16


def _wide(type_: Type) -> Type:
    if isinstance(type_, TupleType):
        return replace(type_, elements=tuple(_wide(element) for element in type_.elements))
    return replace(type_, dtype=DType.FLOAT32) if _is_half(type_) else type_


def _wider(types: Item) -> Item:
    if isinstance(types, tuple):
        return tuple(_wider(element) for element in types)
    return DType.FLOAT32 if types is DType.FLOAT16 else types
