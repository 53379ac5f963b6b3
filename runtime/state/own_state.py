"""The contents of a state file beside the state of the program: the parts of each rank, and the micro-batches of a
cycle that a search at its end needs again. All under reserved names; whoever does not know them may leave them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.core.errors import RuntimeFailure
from .checkpoint import RESERVED, DamagedState

RANKS = RESERVED + "ranks"
"""The note of how many ranks saved the file, where their states differed."""
_KEPT = RESERVED + "kept/"
_OF_RANKS, _SUMS = RESERVED + "rank-", RESERVED + "sum/"


def of_rank(rank: int, name: str) -> str:
    """The name under which a file holds what ``rank`` has of ``name``."""
    return f"{_OF_RANKS}{rank}/{name}"


def of_all(name: str) -> str:
    """The name under which a file holds the sum of what all ranks had of ``name``."""
    return f"{_SUMS}{name}"


def split(given: Mapping[str, Any], notes: Mapping[str, str], rank: int, ranks: int) -> tuple[dict[str, Any], bool]:
    """Everything in a file as ``rank`` of ``ranks`` takes it, and whether that leaves out what other ranks had for
    themselves, because there were more or fewer of them."""
    values = {name: value for name, value in given.items() if not name.startswith((_OF_RANKS, _SUMS))}
    if RANKS not in notes:
        return values, False
    if notes[RANKS] != str(ranks):
        return values, True
    for prefix in (of_rank(rank, ""), _SUMS):
        values.update({name[len(prefix) :]: value for name, value in given.items() if name.startswith(prefix)})
    return values, False


def pack_kept(kept: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The micro-batches that a search keeps, each a row of arrays, as tensors of a file."""
    return {f"{_KEPT}{i}/{j}": array for i, row in enumerate(kept) for j, array in enumerate(row)}


def unpack_kept(values: dict[str, Any], origin: str) -> list[list[Any]]:
    """Takes these tensors out of ``values``. Raises DamagedState, which names ``origin``, where some are missing."""
    rows: dict[int, dict[int, Any]] = {}
    for name in [name for name in values if name.startswith(_KEPT)]:
        row, _, column = name[len(_KEPT) :].partition("/")
        if not (row.isdecimal() and column.isdecimal()):
            raise DamagedState(f"{origin}: '{name}' is the name of nothing that is saved.")
        rows.setdefault(int(row), {})[int(column)] = values.pop(name)
    for found in (rows, *rows.values()):
        if sorted(found) != list(range(len(found))):
            raise DamagedState(f"{origin}: some of the micro-batches that it keeps are missing.")
    return [[row[j] for j in range(len(row))] for _, row in sorted(rows.items())]


def refuse_unknown(values: Mapping[str, Any], origin: str) -> None:
    """RuntimeFailure for a reserved name of a version to come."""
    for name in values:
        if name.startswith(RESERVED):
            raise RuntimeFailure(f"{origin} holds '{name}', which this version does not know. Load it with its own.")
