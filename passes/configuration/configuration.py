"""Configuration files: a pipeline of our own, or the configuration of ``mindspore.boost``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...ir.core.errors import OptionError, nearest
from ..framework.base import Pass
from ..framework.options import REQUIRED, declared_options
from ..framework.pipeline import parse_pipeline
from ..framework.registry import find
from .boost_document import SCHEMA as BOOST_SCHEMA
from .boost_document import translate
from .documents import check_document, print_path, read_document

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "target": {"type": "string", "enum": ["cpu", "gpu", "ascend"]},
        "pipeline": {
            "type": ["string", "array"],
            "items": {"type": "object", "required": ["pass"], "properties": {"pass": {"type": "string"}}},
        },
    },
}
"""JSON Schema of a document of our own. ``pipeline`` is the text of a pipeline, or a list of tables: ``pass`` and the
options of that pass."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """``passes``, all optional, is None if the document does not say; ``notes`` are for the user."""

    passes: list[Pass] | None
    target: str | None = None
    notes: tuple[str, ...] = ()


def read_configuration(path: str | os.PathLike[str] | None, level: str | None = None) -> Configuration:
    """The pipeline that a ``.json`` or ``.toml`` file asks for. The keys tell a document of our own from one of
    ``AutoBoost``.

    ``level`` is that of ``mindspore.boost``, which also works without a file. OptionError for anything wrong.
    """
    if path is None:
        return _of_boost({}, level, f"level {level}")
    document, where = read_document(path), os.fspath(path)
    ours, theirs = SCHEMA["properties"], BOOST_SCHEMA["properties"]
    if not any(key in ours or key in theirs for key in document):
        known = f"'pipeline' and 'target', or the sections of mindspore.boost: {', '.join(theirs)}"
        wrong = next(iter(document), None)
        if wrong is None:
            raise OptionError(f"{where}: the document is empty (known: {known})")
        raise OptionError(f"{where}: unknown key '{wrong}'{nearest(wrong, [*ours, *theirs])}")
    if not any(key in ours for key in document):
        return _of_boost(document, level, where)
    if level is not None:
        raise OptionError(f"{where}: a level belongs to a document of mindspore.boost; this one has its own pipeline")
    check_document(document, SCHEMA, where)
    pipeline = document.get("pipeline")
    passes = None
    if isinstance(pipeline, str):
        try:
            passes = parse_pipeline(pipeline)
        except OptionError as error:
            raise OptionError(f"{where}: pipeline: {error}") from None
    elif pipeline is not None:
        passes = [_pass(table, f"{where}: {print_path(['pipeline', i])}") for i, table in enumerate(pipeline)]
    return Configuration(_optional(passes), document.get("target"))


def _optional(passes: list[Pass] | None) -> list[Pass] | None:
    """A configuration serves many networks, so a pass that has nothing to do in one of them does not stop it."""
    return None if passes is None else [p if p.may_match_nothing else p.as_optional() for p in passes]


def _of_boost(document: Mapping[str, Any], level: str | None, where: str) -> Configuration:
    translation = translate(document, level or "O0", where)
    return Configuration(parse_pipeline(translation.pipeline) or None, notes=translation.notes)


def _pass(table: Mapping[str, Any], where: str) -> Pass:
    try:
        cls = find(table["pass"])
    except OptionError as error:
        raise OptionError(f"{where}.pass: {error}") from None
    declared = declared_options(cls)
    values: dict[str, Any] = {}
    for key in table:
        if key == "pass":
            continue
        if key not in declared:
            hint = nearest(key, list(declared)) if declared else " (it has none)"
            raise OptionError(f"{where}.{key}: pass '{cls.name}' has no option '{key}'{hint}")
        try:
            values[key] = declared[key].check(table[key])
        except OptionError as error:
            raise OptionError(f"{where}.{key}: {error}") from None
    for option in declared.values():
        if option.default is REQUIRED and option.name not in values:
            raise OptionError(f"{where}: pass '{cls.name}' needs option {option.describe()}")
    try:
        return cls(**values)
    except OptionError as error:
        raise OptionError(f"{where}: {error}") from None
