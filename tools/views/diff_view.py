"""The difference of two programs in the formats of boost-inspect."""

from __future__ import annotations

from ...ir.diff_text import SIGNS, Lines, diff_text, heading, sections
from ...ir.difference import ProgramDiff

__all__ = ["FORMATS", "SIGNS", "Lines", "diff_as", "heading", "sections"]
FORMATS = ("text", "json", "html")


def diff_as(found: ProgramDiff, format_: str, a: str, b: str, *, colour: bool = False) -> str:
    """The difference in one of :data:`FORMATS`."""
    if format_ == "json":
        from ..cli import json_text

        return json_text({"a": a, "b": b, **found.to_json()})
    if format_ == "html":
        from .diff_page import diff_page

        return diff_page(found, a, b)
    return diff_text(found, colour=colour)
