"""All rules, by operator."""

from __future__ import annotations

from functools import partial

from ....core.graph import Value
from ..operators import ROWS, Row, Unsupported
from . import arithmetic, layers, moves, windows
from .call import Call, Rule


def _row(row: Row, c: Call) -> Value:
    """The primitive of a row."""
    operands = [_operand(spec, c) for spec in row.operands]
    if not c.types or c.types[0] is None:
        raise Unsupported("the type of its result is not known")
    return c.e.emit(row.primitive, operands, c.types[0], row.attributes, row.kind)


def _operand(spec: object, c: Call) -> object:
    if isinstance(spec, int):
        return c.value(spec)
    if isinstance(spec, tuple):
        return tuple(c.attribute(name) for name in spec)
    assert isinstance(spec, str)
    if spec[0] == "#":
        return c.ints(int(spec[1:]))[0]
    return bool(c.attribute(spec[1:])) if spec[0] == "?" else c.attribute(spec)


RULES: dict[str, Rule] = {
    **{row.operator: partial(_row, row) for row in reversed(ROWS) if not row.fixed},
    **arithmetic.RULES,
    **layers.RULES,
    **moves.RULES,
    **windows.RULES,
}
"""The first row of an operator, or a rule of its own."""

FOLDED_ONLY = frozenset(("If", "EyeLike", "NonZero", "Unique", "Det"))
"""Operators that are known only where all their inputs (of If: its condition) are."""
