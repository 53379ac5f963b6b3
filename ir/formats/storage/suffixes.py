"""The form of a program on disk, as the suffix of its name says it: one table for every door.

| suffix         | form    | :func:`.load.load`, commands | :func:`.save.save`, ``-o``, ``--emit`` |
|----------------|---------|------------------------------|----------------------------------------|
| .boost, none   | program | a program directory          | a program directory                    |
| .mindir        | mindir  | any MindIR                   | one self-contained MindIR              |
| .ir, .txt      | text    | the text form                | the text form                          |
| .onnx          | onnx    | a forward model              | (refused; boost-inspect draws one)     |

A directory is read as a program whatever its name, another file as a MindIR. The case of letters makes no difference.
"""

from __future__ import annotations

import os
from pathlib import Path

from ...core.errors import OptionError

FORMS = {
    ".boost": "program", "": "program", ".mindir": "mindir", ".ir": "text", ".txt": "text", ".onnx": "onnx",
}  # fmt: skip
TEXT_SUFFIXES = tuple(suffix for suffix, form in FORMS.items() if form == "text")


def form_of(path: str | os.PathLike[str]) -> str | None:
    """``program``, ``mindir``, ``text`` or ``onnx``; None where the suffix says nothing."""
    return FORMS.get(Path(path).suffix.lower())


def form_to_write(path: str | os.PathLike[str]) -> str:
    """``program``, ``mindir`` or ``text``: what is written under this name; OptionError where the suffix says none."""
    form = form_of(path)
    if form is None or form == "onnx":
        raise OptionError(
            f"'{path}': no program can be written as '{Path(path).suffix.lower()}'. Give a name that ends with .boost "
            "(a program directory), .mindir (one self-contained file), or .ir or .txt (text)"
        )
    return form


def suffix_for(form: str) -> str:
    """The suffix that a form is written under, where a name is to be made up."""
    return next(suffix for suffix, known in FORMS.items() if known == form)
