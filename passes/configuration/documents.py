"""Configuration documents: reading JSON and TOML files, and checking what stands in them against a schema."""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ...ir.core.errors import OptionError, nearest

Schema = Mapping[str, Any]

MOST = 20
"""How many things that are wrong with a document an error lists."""
_TYPE_NAMES = {
    "object": "a table",
    "array": "a list",
    "string": "a string",
    "integer": "an integer",
    "number": "a finite number",
    "boolean": "true or false",
    "null": "null",
}


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The table in a ``.json`` or ``.toml`` file. OptionError for another suffix, and for what cannot be read or is not
    that language."""
    file = Path(path)
    parse = {".json": _json, ".toml": _toml}.get(file.suffix.lower())
    if parse is None:
        raise OptionError(f"{path}: a configuration is a .json or a .toml file")
    try:
        document = parse(file.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror}") from None
    except RecursionError:
        raise OptionError(f"{path}: nested too deeply") from None
    except ValueError as error:  # of both languages, and of what is not UTF-8
        raise OptionError(f"{path}: not valid {file.suffix[1:].upper()}: {error}") from None
    if not isinstance(document, dict):
        raise OptionError(f"{path}: must be a table (an object), not {_shown(document)}")
    return document


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"the key '{next(key for key in counts if counts[key] > 1)}' is given twice")
    return table


def _toml(text: str) -> Any:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def check_document(document: Any, schema: Schema, where: str) -> None:
    """OptionError, naming ``where``, the path and the nearest key, for all that breaks the JSON Schema.

    Stricter than JSON Schema in numbers: 10.0 is no integer, NaN and infinities are no numbers. Python's mappings and
    tuples serve as tables and lists.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    checker = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "object": lambda _, value: isinstance(value, Mapping),
            "array": lambda _, value: isinstance(value, (list, tuple)),
            "integer": lambda _, value: type(value) is int,
            "number": lambda _, value: type(value) is int or (type(value) is float and math.isfinite(value)),
        }
    )
    found = extend(Draft202012Validator, type_checker=checker)(schema).iter_errors(document)
    messages = [message for error in sorted(found, key=_place) for message in islice(_messages(error), MOST + 1)]
    if len(messages) > MOST:
        messages = [*messages[:MOST], f"and {len(messages) - MOST} more"]
    if messages:
        raise OptionError("\n  ".join(f"{where}: {message}" for message in messages))


def _place(error: Any) -> list[str]:
    return [str(part) for part in error.absolute_path]


def _messages(error: Any) -> Iterable[str]:
    path, rule, value = error.absolute_path, error.validator_value, error.instance
    name = print_path(path) or "the document"
    if error.validator == "additionalProperties":
        known = list(error.schema["properties"])
        for key in value:
            if key not in known:
                hint = nearest(str(key), known) if known else " (it has no keys)"
                yield f"unknown key '{print_path([*path, key])}'{hint}"
    elif error.validator == "type":
        allowed = [_TYPE_NAMES[t] for t in ([rule] if isinstance(rule, str) else rule)]
        yield f"{name} must be {' or '.join(allowed)}, not {_shown(value)}"
    elif error.validator == "enum":
        hint = nearest(value, [str(v) for v in rule]) if isinstance(value, str) else f" (known: {rule})"
        yield f"{name} cannot be {_shown(value)}{hint}"
    elif error.validator in ("minimum", "maximum"):
        side = "least" if error.validator == "minimum" else "most"
        yield f"{name} must be at {side} {rule}, not {_shown(value)}"
    elif error.validator == "required":
        yield f"{name} lacks {' and '.join(repr(key) for key in rule if key not in value)}"
    else:
        yield f"{name}: {error.message}"


def print_path(path: Iterable[str | int]) -> str:
    """``grad_freeze.freeze_p``, ``pipeline[0].steps``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _shown(value: Any) -> str:
    """As in the document, cut short."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = json.dumps(value, ensure_ascii=False, default=lambda v: f"a {type(v).__name__}")
    return text if len(text) <= 60 else f"{text[:57]}…"
