"""The names of open sizes and results in the model that a program was made of: noted with the program, so that what is
written again has the same.

The note is a text in the file's ``user_info``, which MindIR files and program directories keep. It comes from a file,
so nothing in it is relied on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .program import Program

_KEY = "onnx"


@dataclass(frozen=True)
class Interface:
    """``batch``: by input, the name of its first dimension where that was open. ``outputs``: names of the results."""

    batch: Mapping[str, str] = field(default_factory=dict)
    outputs: Sequence[str] = ()


def note_interface(program: Program, interface: Interface) -> None:
    """Notes it with the program, in place."""
    text = json.dumps({"batch": dict(interface.batch), "outputs": list(interface.outputs)})
    program.metadata["user_info"] = {**user_info(program), _KEY: text}


def interface_of(program: Program) -> Interface:
    """The note; empty where there is none, or where the text is no such note."""
    try:
        noted = json.loads(user_info(program).get(_KEY, ""))
        batch, outputs = dict(noted["batch"]), list(noted["outputs"])
    except (ValueError, TypeError, KeyError):
        return Interface()
    if not all(isinstance(text, str) for text in (*batch, *batch.values(), *outputs)):
        return Interface()
    return Interface(batch, tuple(outputs) if len(set(outputs)) == len(outputs) else ())


def user_info(program: Program) -> Mapping[str, Any]:
    """The notes that MindIR files carry along by name; a file may hold anything in their place."""
    found = program.metadata.get("user_info")
    return found if isinstance(found, Mapping) else {}
