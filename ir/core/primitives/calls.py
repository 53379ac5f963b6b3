"""How MindSpore's Python takes what a MindIR holds as operands: two tables of MindSpore 2.10."""

from __future__ import annotations

from functools import cache
from importlib import resources

from ..types import DType

CODES: dict[DType, int] = {
    DType.BOOL: 30, DType.INT8: 32, DType.INT16: 33, DType.INT32: 34, DType.INT64: 35, DType.UINT8: 37,
    DType.UINT16: 38, DType.UINT32: 39, DType.UINT64: 40, DType.FLOAT16: 42, DType.FLOAT32: 43, DType.FLOAT64: 44,
    DType.BFLOAT16: 45,
}  # fmt: skip
"""MindSpore's ``TypeId`` of number types as 2.10 prints them (``type_to_type_id``)."""


@cache
def constructor_arguments() -> dict[str, tuple[str, ...]]:
    """Constructor arguments of MindSpore's primitive functions: a MindIR holds them as the last operands."""
    text = (resources.files(__package__) / "constructor_arguments.txt").read_text("ascii")
    return {name: tuple(names) for name, *names in map(str.split, text.splitlines())}


@cache
def handled_operands() -> dict[tuple[str, int], tuple[str, str]]:
    """By primitive and position: operands that a call takes as a type (``dtype``) or a word (``enum``), and a MindIR
    holds as a number; with their names."""
    text = (resources.files(__package__) / "handled_operands.txt").read_text("ascii")
    rows = (line.split() for line in text.splitlines())
    return {(name, int(at)): (kind, argument) for name, kind, argument, at in rows}


def names_type(primitive: str, position: int) -> bool:
    """Whether the operand at ``position`` is the number of an element type (:data:`CODES`)."""
    return handled_operands().get((primitive, position), ("", ""))[0] == "dtype"
