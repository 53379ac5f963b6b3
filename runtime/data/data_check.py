"""Checks of arrays before anything is trained on them: shapes, types, numbers that are none."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.core.errors import RuntimeFailure
from ...ir.core.graph import Graph
from ...ir.core.types import DType, TensorType
from ...ir.core.wording import counted
from ..state.finite_state import is_finite
from .inputs import cast

log = logging.getLogger("boost_compile")

_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Column:
    """The rows that one input is fed with, one for each sample, and their name in messages: ``data.npz: array
    'images'``."""

    array: Any
    name: str


def check_columns(graph: Graph, columns: Sequence[Column]) -> None:
    """RuntimeFailure, which names array and input, where rows are not what ``graph`` takes."""
    for value, column in zip(graph.inputs, columns, strict=True):
        type_, array = value.type, column.array
        if not isinstance(type_, TensorType):
            continue
        takes = f"input '{value.name}' of graph '{graph.name}' takes"
        row, given = type_.shape[1:], array.shape[1:]
        if type_.shape != (-2,) and not (
            array.ndim and len(row) == len(given) and all(e in (-1, d) for e, d in zip(row, given, strict=True))
        ):
            fitting = [v.name for v in graph.inputs if isinstance(v.type, TensorType) and v.type.shape[1:] == given]
            hint = (
                f" It fits input '{fitting[0]}': arrays go to the inputs by name, or else in their order."
                if fitting and array.ndim
                else ""
            )
            raise RuntimeFailure(
                f"{column.name} holds {counted(len(array) if array.ndim else 1, 'row')} of shape {list(given)}, and "
                f"{takes} ones of shape {list(row)}.{hint}"
            )
        wanted = np.dtype("float32" if type_.dtype is DType.BFLOAT16 else type_.dtype.value)
        # Integers are looked at by their values; the rest is a matter of types.
        cast(f"{column.name}: {takes}", array if array.dtype.kind in "iu" else array[:0], wanted, True)


def check_finite(graph: Graph, columns: Sequence[Column], refuse: bool) -> None:
    """Names the first row that holds NaN, which is refused if ``refuse``, or an infinity, which may be meant (masks)
    and is warned of."""
    for value, column in zip(graph.inputs, columns, strict=True):
        array = column.array
        if array.dtype.kind != "f" or not array.size or is_finite(array):
            continue
        first, bad, has_nan = _rows_not_finite(array)
        what = "NaN" if has_nan else "an infinity"
        text = (
            f"{column.name}: row {first} holds {what} ({bad:,} of {counted(len(array), 'row')} "
            f"{'is' if bad == 1 else 'are'} not finite), for input '{value.name}'."
        )
        if not (refuse and has_nan):
            log.warning("%s", text)
            continue
        raise RuntimeFailure(
            f"{text} One such sample can spoil all weights, and the loss need not show it. Leave these rows out,",
            python="compile with 'overflow-check' to skip their updates, or set allow_nonfinite=True.",
            command="make a program that skips their updates with boost-compile --check-overflow, or give boost-run "
            "--allow-nonfinite.",
        )


def _rows_not_finite(array: Any) -> tuple[int, int, bool]:
    """The first row that is not finite (of those with NaN, if there are any), how many rows are not, and whether there
    is NaN."""
    bad, infinite, nan = 0, -1, -1
    for start in range(0, len(array), _ROWS):
        rows = array[start : start + _ROWS].reshape(len(array[start : start + _ROWS]), -1)
        spoiled = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        bad += len(spoiled)
        if len(spoiled) and infinite < 0:
            infinite = start + int(spoiled[0])
        nans = spoiled[np.isnan(rows[spoiled]).any(axis=1)]
        if len(nans) and nan < 0:
            nan = start + int(nans[0])
    return (infinite, bad, False) if nan < 0 else (nan, bad, True)
