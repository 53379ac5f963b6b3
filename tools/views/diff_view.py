"""The difference of two programs in the formats of boost-inspect."""

from __future__ import annotations

from ...ir.analysis.compare.diff_text import diff_text
from ...ir.analysis.compare.difference import ProgramDiff


def diff_as(found: ProgramDiff, format_: str, a: str, b: str, *, colour: bool = False, width: int | None = None) -> str:
    """The difference as ``text``, ``json`` or ``html``; as text, in lines of at most ``width`` columns."""
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
