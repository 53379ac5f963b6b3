"""The tables that are printed, row by row as they come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """The cells of a row, and what is wrong with what it tells."""

    cells: tuple[str, ...]
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"| {' | '.join(self.cells)} |"


@dataclass(frozen=True)
class Table:
    """`rows` may be made one by one while they are printed."""

    title: str
    head: tuple[str, ...]
    rows: Iterable[Row]

    def print(self) -> list[str]:
        """The problems of all rows."""
        print(f"\n{self.title}\n\n{Row(self.head)}\n|{'---|' * len(self.head)}", flush=True)
        problems: list[str] = []
        for row in self.rows:
            print(row, flush=True)
            problems += row.problems
        return problems
