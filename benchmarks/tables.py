"""Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose columns but the first stand flush right."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---", *["--:"] * (len(head) - 1)], *rows)]
