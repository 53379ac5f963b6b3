"""The notes of a MindIR about the compilation that it came from, beside its graph: how many micro-batches an optimizer
step takes, what was compiled of what, and what its state is for. MindSpore carries such notes along and reads none of
them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...core.errors import FormatError
from ...core.interface import user_info
from ...core.program import ROLES, TARGETS, Entry, Program, Schedule, StateVariable
from ...files.document import Document

NOTE, FORM = "boost_compile.program", "boost_compile.form"
"""Keys of the file's ``user_info``: the notes, and how it holds the schedule. A program keeps the second."""
SELF_CONTAINED = "self-contained"
MOST = 1 << 20
"""Micro-batches of an optimizer step that are believed."""


def note_compiled(program: Program, state: Mapping[str, StateVariable], *, self_contained: bool) -> Mapping[str, Any]:
    """The header of a file that holds ``program`` as one graph on ``state``. ``self_contained``: its schedule became
    part of that graph. A program that nothing was compiled of is noted nothing about."""
    schedule = program.schedule
    if not program.pipeline and program.micro_batches() == 1:
        return program.metadata
    note: dict[str, Any] = {
        "micro_batches": program.micro_batches(),
        "count": schedule.count,
        "max_skipped": schedule.max_skipped,
        "pipeline": program.pipeline,
        "source": program.source,
        "target": program.target,
        "roles": {name: [v.role, v.weight, v.trainable] for name, v in state.items() if v.role != "unknown"},
    }
    if measured := {name: v.info for name, v in state.items() if v.role == "monitor"}:
        note["measured"] = measured
    # A file that is read and written again stays the same, so its notes stand in one order.
    others = {key: text for key, text in user_info(program).items() if key not in (NOTE, FORM)}
    form = {FORM: SELF_CONTAINED} if self_contained or is_self_contained(program) else {}
    return {**program.metadata, "user_info": {**others, NOTE: json.dumps(note, sort_keys=True), **form}}


def is_self_contained(program: Program) -> bool:
    """Whether the program was read from a file that holds a whole schedule in one graph."""
    return user_info(program).get(FORM) == SELF_CONTAINED


def compiled_by(program: Program) -> str:
    """The names of the passes that made the program, in this compilation or the one that wrote its file; "" if none."""
    text = re.sub(r"\{[^}]*\}", "", program.pipeline)
    return ", ".join(dict.fromkeys(re.findall(r"[a-z][a-z0-9-]*(?=\{|,|$)", text)))


def recognise(program: Program) -> Program:
    """Heeds and takes out the notes of a program just read. FormatError unless :func:`note_compiled` wrote them."""
    info = user_info(program)
    text = info.get(NOTE)
    if not isinstance(text, str):
        return program
    try:
        _heed(program, Document.parse(text))
    except FormatError as error:
        raise FormatError(f"its note '{NOTE}': {error}") from None
    rest = {key: value for key, value in info.items() if key != NOTE}
    program.metadata = {key: value for key, value in program.metadata.items() if key != "user_info"}
    if rest:
        program.metadata["user_info"] = rest
    return program


def _heed(program: Program, note: Document) -> None:
    size = note["micro_batches"].integer(1)
    if size > MOST:
        raise note["micro_batches"].wrong(f"at most {MOST}")
    count, limit = note["count"], note["max_skipped"]
    names = tuple(program.state)
    (graph,) = program.graphs
    program.schedule = Schedule(
        (Entry(graph, size),),
        count=None if count.value is None else count.one_of(names),
        max_skipped=None if limit.value is None else limit.integer(1),
    )
    program.pipeline = note["pipeline"].text()
    program.source = {key: value.text() for key, value in note["source"].items()}
    program.target = note["target"].one_of(TARGETS)
    for name, entry in note["measured"].items() if "measured" in note.object() else ():
        if name not in program.state:
            raise entry.wrong("what a state of the file measures")
        program.state[name].info.update(entry.free())
    for name, entry in note["roles"].items():
        if name not in program.state:
            raise entry.wrong("the role of a state of the file")
        parts = entry.list()
        if len(parts) != 3:
            raise entry.wrong("a role, the name of a weight, and whether it is trained")
        trainable = None if parts[2].value is None else parts[2].truth()
        program.state[name] = replace(
            program.state[name], role=parts[0].one_of(ROLES), weight=parts[1].text(), trainable=trainable
        )
