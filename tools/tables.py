"""Tables and long lines for a terminal of any width: no word is broken, and what goes on in the next line hangs.

A table that does not fit, even with its lines wrapped, becomes a list: each row under its first cell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich import table as rich_table
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

LONG = 32
"""A word of more characters, such as a pipeline or a path, may be broken behind a comma, a slash or a brace."""
_GAP = 3
"""Columns between two cells."""
_PIECES = re.compile(r"[^,/{]*[,/{]+|[^,/{]+")


class Table:
    """Rows of cells, which may hold rich's markup. ``numbers``: the columns that stand flush right."""

    def __init__(self, title: str, columns: Sequence[str], numbers: Sequence[str] = ()):
        self.title = title
        self.columns = tuple(columns)
        self.numbers = frozenset(numbers)
        self.rows: list[list[Text]] = []

    def add_row(self, *cells: str) -> None:
        from rich.text import Text

        self.rows.append([Text.from_markup(cell) for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        widths = self._widths(width)
        if self.title:
            yield from _hanging(f"[bold]{self.title}[/bold]", width)
        if widths is None:
            yield from self._list(width)
        else:
            yield self._table(widths)

    def _widths(self, width: int) -> list[int] | None:
        """Each column as wide as its text, or as it can be, but never less than its longest word; None if they cannot
        stand beside each other."""
        cells = [[name, *(row[i].plain for row in self.rows)] for i, name in enumerate(self.columns)]
        least = [max((len(w) for cell in column for w in _words(cell)), default=0) for column in cells]
        most = [max(len(line) for cell in column for line in cell.split("\n")) for column in cells]
        left = width - 2 - _GAP * (len(cells) - 1) - sum(least)
        if left < 0:
            return None
        for i in sorted(range(len(cells)), key=lambda i: most[i] - least[i]):
            more = min(left, most[i] - least[i])
            least[i] += more
            left -= more
        return least

    def _table(self, widths: list[int]) -> rich_table.Table:
        from rich import box
        from rich import table as rich_table

        made = rich_table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name, width in zip(self.columns, widths, strict=True):
            made.add_column(name, justify="right" if name in self.numbers else "left", width=width, overflow="fold")
        for row in self.rows:
            made.add_row(*(_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)))
        return made

    def _list(self, width: int) -> RenderResult:
        from rich.text import Text

        for row in self.rows:
            yield Text("")
            head = row[0].copy()
            head.stylize("bold")
            yield from _lines(head, width, "", "  ")
            named = [(name, cell) for name, cell in zip(self.columns[1:], row[1:], strict=True) if cell.plain]
            counts = Text("   ").join(Text.assemble(f"{n} ", c) for n, c in named if n in self.numbers)
            if counts.plain:
                yield from _lines(counts, width, "  ", "    ")
            for name, cell in named:
                if name not in self.numbers:
                    yield from _lines(Text.assemble((f"{name}: ", "dim"), cell), width, "  ", "    ")
        yield Text("")


def say(out: Console, text: str, style: str = "") -> None:
    """A line, in rich's markup: on a terminal its continuations hang; in a file it stays one line."""
    if not out.is_terminal:
        out.print(text, style=style or None, soft_wrap=True)
        return
    for line in _hanging(text, out.width):
        out.print(line, style=style or None, soft_wrap=True)


def _hanging(text: str, width: int) -> list[Text]:
    from rich.text import Text

    found = []
    for line in Text.from_markup(text).split("\n", allow_blank=True):
        indent = line.plain[: len(line.plain) - len(line.plain.lstrip())]
        found += _lines(line[len(indent) :], width, indent, f"{indent}  ")
    return found


def _lines(text: Text, width: int, first: str, others: str) -> list[Text]:
    """``text`` in lines of at most ``width`` columns behind these indents, but for a word that is longer than that."""
    from rich.text import Text

    broken = _broken(text, max(width - len(others), 20))
    return [Text.assemble(others if i else first, line) for i, line in enumerate(broken)]


def _wrapped(text: Text, width: int) -> Text:
    from rich.text import Text

    return Text("\n").join(line for part in text.split("\n", allow_blank=True) for line in _broken(part, width))


def _broken(text: Text, width: int) -> list[Text]:
    """Greedily broken between words, and within long ones where they may be."""
    plain = text.plain
    if len(plain) <= width:
        return [text]
    cuts: list[int] = []
    start = 0
    for match in re.finditer(r"\S+", plain):
        at = match.start()
        for piece in _pieces(match[0]) if len(match[0]) > width else [match[0]]:
            if at + len(piece) - start > width and at > start:
                cuts.append(at)
                start = at
            at += len(piece)
    lines = list(text.divide(cuts)) if cuts else [text]
    for line in lines:
        line.rstrip()
    return lines


def _words(text: str) -> list[str]:
    return [piece for word in text.split() for piece in _pieces(word)]


def _pieces(word: str) -> list[str]:
    return _PIECES.findall(word) if len(word) > LONG else [word]
