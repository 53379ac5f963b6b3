"""What a file says of the compilation that it came from: MindIR has no place for a schedule or for reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .program import Program

PIPELINE, FORM = "boost_compile.pipeline", "boost_compile.form"
"""Keys of the file's ``user_info``: the passes that it has been through, and how it holds the schedule."""
SELF_CONTAINED = "self-contained"


def note_compiled(program: Program, *, self_contained: bool) -> Mapping[str, Any]:
    """The header of a file that holds ``program``. ``self_contained``: its schedule became part of its one graph."""
    if not program.pipeline:
        return program.metadata
    notes = {PIPELINE: program.pipeline, **({FORM: SELF_CONTAINED} if self_contained else {})}
    return {**program.metadata, "user_info": {**_user_info(program), **notes}}


def is_self_contained(program: Program) -> bool:
    """Whether the program was read from a file that holds a whole schedule in one graph."""
    return _user_info(program).get(FORM) == SELF_CONTAINED


def compiled_by(program: Program) -> str:
    """The names of the passes that the program has been through, in this compilation or in the one that wrote its file;
    "" if none."""
    text = program.pipeline or str(_user_info(program).get(PIPELINE, ""))
    return ", ".join(dict.fromkeys(re.findall(r"[a-z][a-z0-9-]*(?=\{|,|$)", re.sub(r"\{[^}]*\}", "", text))))


def _user_info(program: Program) -> Mapping[str, Any]:
    found = program.metadata.get("user_info", {})
    return found if isinstance(found, Mapping) else {}
