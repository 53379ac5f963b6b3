"""The difference of two programs in the formats of boost-inspect."""

from __future__ import annotations

from ...ir.analysis.compare.diff_text import SIGNS, Lines, diff_text, heading, sections
from ...ir.analysis.compare.difference import ProgramDiff

__all__ = ["FORMATS", "SIGNS", "Lines", "diff_as", "heading", "sections"]
FORMATS = ("text", "json", "html")


def diff_as(found: ProgramDiff, format_: str, a: str, b: str, *, colour: bool = False, width: int | None = None) -> str:
    """The difference in one of :data:`FORMATS`; as text, in lines of at most ``width`` columns."""
    if format_ == "json":
        from ..cli import json_text

        return json_text({"a": a, "b": b, **found.to_json()})
    if format_ == "html":
        from .diff_page import diff_page

        return diff_page(found, a, b)
    if width is None:
        return diff_text(found, colour=colour)
    from ..cli import hanging

    return diff_text(found, colour=colour, hang=lambda line: hanging(line, width, code=None))
