"""The files that pages are made of: style sheets, scripts, templates."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def page_file(name: str) -> str:
    """The text of a file in ``page/``, without references to source maps, which no page brings along."""
    text = files(__package__).joinpath("page", *name.split("/")).read_text(encoding="utf-8")
    return "\n".join(line for line in text.split("\n") if not line.startswith("//# sourceMappingURL"))
