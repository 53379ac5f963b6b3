"""What the suffix of a name says of a program's form on disk: one table for loading, saving and the commands."""

from __future__ import annotations

from pathlib import Path

from ...core.errors import OptionError

FORMS = {".boost": "program", "": "program", ".mindir": "mindir", ".ir": "text", ".txt": "text"}
"""What is written by suffix: a program directory (also under a name without one), one MindIR, the text form."""

TEXT_SUFFIXES = tuple(suffix for suffix, form in FORMS.items() if form == "text")


def form_of(path: str) -> str:
    """``program``, ``mindir`` or ``text``: what is written under this name. OptionError where the suffix says none."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMS:
        raise OptionError(
            f"'{path}': no program can be written as '{suffix}'. Give a name that ends with .boost (a program "
            f"directory), .mindir (one self-contained file), or .ir or .txt (text)"
        )
    return FORMS[suffix]
