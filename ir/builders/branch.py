"""Conditions in a graph: ``Switch`` chooses one of two functions, and a call runs it.

MindIR functions have no free variables: inputs first, then the state that they touch by name, the effect token last.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.attributes import MonadValue, TensorValue
from ..core.data import ZeroData
from ..core.errors import VerifyError
from ..core.graph import Graph, Node, Value
from ..core.op import CALL
from ..core.types import UMONAD, DType, ScalarType, TensorType, TupleType, Type

_SCALARS: dict[DType, bool | int | float] = {DType.BOOL: False, DType.INT64: 0, DType.FLOAT32: 0.0}
"""Zeros of what is no tensor, in the types that Python's numbers have."""


def choose(
    graph: Graph, condition: Value, yes: Graph, no: Graph, arguments: Sequence[Value] = (), *, scope: str
) -> Node:
    """``condition ? yes(...) : no(...)``, each given the arguments and the state that its further inputs name."""
    branches = [_bind(graph, function, arguments, scope) for function in (yes, no)]
    switch = graph.create("Switch", [condition, *branches], scope=scope)
    return graph.create(CALL, [switch], plain(yes.result.type), scope=scope, name=graph.fresh_name("update"))


def _bind(graph: Graph, function: Graph, arguments: Sequence[Value], scope: str) -> Node:
    bound: list[Value] = list(arguments)
    for formal in function.inputs[len(arguments) :]:
        if formal.type == UMONAD:
            bound.append(graph.constant(MonadValue("umonad"), "u"))
        else:
            bound.append(graph.state(formal.name, formal.type))
    return graph.create("Partial", [graph.reference(function), *bound], scope=scope)


def plain(type_: Type) -> Type:
    """A type without what it says of the value's memory, which does not leave a function."""
    if isinstance(type_, TupleType):
        return TupleType(tuple(plain(t) for t in type_.elements), type_.is_list, type_.dynamic)
    return TensorType(type_.dtype, type_.shape) if isinstance(type_, TensorType) else type_


def zeros(graph: Graph, type_: Type, scope: str) -> Value:
    """Zeros of a type of static tensors and numbers, for the branch that computes nothing."""
    if isinstance(type_, TupleType):
        return graph.create("MakeTuple", [zeros(graph, t, scope) for t in type_.elements], scope=scope)
    if isinstance(type_, TensorType) and type_.is_static:
        return graph.constant(TensorValue(TensorType(type_.dtype, type_.shape), ZeroData(type_.nbytes)))
    if isinstance(type_, ScalarType) and type_.dtype in _SCALARS:
        return graph.constant(_SCALARS[type_.dtype])
    raise VerifyError(f"a result of type {type_} has no zeros: it cannot come from a branch that may not run")
