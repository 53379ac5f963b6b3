"""Primitives that run code of the file."""

from __future__ import annotations

from .definition import IO, Facts, Family, Table, each, family

TABLE: Table = {
    **each("PyExecute PyInterpret PyFunc", Facts(Family.CODE, attributes=IO)),
    **family(Family.CODE, "Custom CustomExt HookBackward CellBackwardHook InsertGradientOf Morph"),
}
