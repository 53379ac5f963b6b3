"""Simplifications of a program that leave nothing out: data, shapes, names, and a file's notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from ...ir.core.attributes import TensorValue
from ...ir.core.data import BytesData, Data, ZeroData
from ...ir.core.graph import Constant, Node, Value
from ...ir.core.op import NO_ATTRIBUTES, Op
from ...ir.core.program import Program
from ...ir.core.types import TensorType, TupleType, Type
from .cuts import bodies

Simplification = tuple[str, Callable[[Program], None]]
"""The name of a simplification, and the function that does it to (a copy of) the program."""
_RECORDED = ("input_names", "output_names")
"""Attributes of no effect on what a primitive computes."""
SMALLER = (1, 2)
"""The sizes that are tried in place of a dimension."""


def simplifications(program: Program) -> Iterator[Simplification]:
    """For the program as it is now; those that do most first."""
    yield "notes", _without_notes
    yield "origins and recorded names", _without_origins
    yield "links and marks", _without_marks
    yield "scopes", _without_scopes
    yield "names", _plain_names
    for size in sorted(_dimensions(program), reverse=True):
        for smaller in SMALLER:
            if smaller < size:
                yield f"dimension {size} to {smaller}", partial(resize, size=size, smaller=smaller)


def _without_notes(program: Program) -> None:
    program.metadata, program.source, program.reports = {}, {}, []
    for variable in program.state.values():
        variable.info = {}
    for _, body in bodies(program):
        body.attributes, body.info = {}, {}


def _without_origins(program: Program) -> None:
    for _, body in bodies(program):
        for node in body:
            node.origin = None
            kept = {k: v for k, v in node.op.attributes.items() if k not in _RECORDED}
            node.op = Op(node.op.name, kept, "", node.op.kind)


def _without_marks(program: Program) -> None:
    for _, body in bodies(program):
        for node in body:
            node.marks = node.primal = NO_ATTRIBUTES


def _without_scopes(program: Program) -> None:
    for _, body in bodies(program):
        for node in body:
            node.scope = ""


def _plain_names(program: Program) -> None:
    """Values by their primitive and number, constants by number."""
    for _, body in bodies(program):
        constants = dict.fromkeys(v for node in body for v in node.operands if isinstance(v, Constant))
        for i, constant in enumerate(constants):
            constant.name = f"c{i}"
        for i, node in enumerate(body):
            node.name = f"{node.op.name.lower()}{i}"


def zero_data(program: Program) -> None:
    """All state starts from zeros."""
    for variable in program.state.values():
        variable.data = ZeroData(variable.nbytes)


# -- shapes ------------------------------------------------------------------------------------------------------------


def _dimensions(program: Program) -> set[int]:
    """The dimensions of inputs, states and results that could be smaller."""
    found: set[int] = set()
    types: list[Type] = [v.type for v in program.state.values()]
    for _, body in bodies(program):
        types += [v.type for v in body.inputs]
        types += [node.type for node in body]
    while types:
        type_ = types.pop()
        if isinstance(type_, TensorType):
            found.update(d for d in type_.shape if d > 1)
        elif isinstance(type_, TupleType):
            types += type_.elements
    return found


def resize(program: Program, size: int, smaller: int) -> None:
    """Every dimension of ``size`` becomes ``smaller``, in types, data, and in shapes that stand in constants and
    attributes. Whether the program still means something, the verifier and the check say."""

    def dims(shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(smaller if d == size else d for d in shape)

    def typed(type_: Type) -> Type:
        if isinstance(type_, TensorType):
            return replace(type_, shape=dims(type_.shape))
        if isinstance(type_, TupleType):
            return replace(type_, elements=tuple(map(typed, type_.elements)))
        return type_

    def valued(value: Any) -> Any:
        if isinstance(value, TensorValue):
            type_ = typed(value.type)
            assert isinstance(type_, TensorType)
            return TensorValue(type_, _fitted(value.data, type_.nbytes))
        if isinstance(value, (tuple, list)) and value and all(type(v) is int for v in value):
            return type(value)(smaller if v == size else v for v in value)
        return value

    seen: set[Value] = set()
    for variable in program.state.values():
        type_ = typed(variable.type)
        assert isinstance(type_, TensorType)
        variable.type, variable.data = type_, _fitted(variable.data, type_.nbytes)
    for _, body in bodies(program):
        values: list[Value] = [*body.inputs, *body.states.values(), *body]
        values += [v for node in body for v in node.operands if isinstance(v, Constant)]
        for value in values:
            if value in seen:
                continue
            seen.add(value)
            value.type = typed(value.type)
            if isinstance(value, Constant):
                value.value = valued(value.value)
            elif isinstance(value, Node) and value.attributes:
                op = value.op
                value.op = Op(op.name, {k: valued(v) for k, v in op.attributes.items()}, op.instance, op.kind)


def _fitted(data: Data, nbytes: int) -> Data:
    """As many bytes as are needed, from the start."""
    if data.nbytes == nbytes:
        return data
    if isinstance(data, ZeroData) or data.nbytes < nbytes:
        return ZeroData(nbytes)
    return BytesData(bytes(data.view()[:nbytes]))
