"""Which input of a training program is the label alone: noted with the program by who knows it.

The note is a text in the file's ``user_info``, which MindIR files and program directories keep. It comes from a file,
so an input of that name is looked for.
"""

from __future__ import annotations

from ...core.interface import user_info
from ...core.program import Program

_KEY = "boost_compile.label"


def note_label(program: Program, name: str) -> None:
    """Notes it with the program, in place."""
    program.metadata["user_info"] = {**user_info(program), _KEY: name}


def noted_label(program: Program) -> str | None:
    """The name of the input; None where nothing is noted."""
    name = user_info(program).get(_KEY)
    return name if isinstance(name, str) else None
