"""The table of operators, of all families."""

from __future__ import annotations

from .rules import elementwise, layers, places, products, shapes, windows

TABLE = (*elementwise.TABLE, *products.TABLE, *windows.TABLE, *layers.TABLE, *shapes.TABLE, *places.TABLE)
READ = {entry.operator: entry.read for entry in TABLE if entry.read is not None}
WRITE = {entry.primitive: entry.write for entry in TABLE if entry.write is not None}
FOLDED_ONLY = frozenset(("Constant", "ConstantOfShape", "If", "EyeLike", "NonZero", "Range", "Unique", "Det"))
"""Operators that are known only where all their inputs (of If: its condition) are."""
