"""Pipeline text: ``gradient-accumulation{steps=4,reduction=mean},overflow-check`` to passes and back.

    pipeline = [pass {"," pass}]
    pass     = name ["?"] options

:mod:`ir.core.option_text` says how options are written. A pass with ``?`` is optional: where it matches nothing, that
is a warning and no error.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.core.errors import OptionError, nearest
from ...ir.core.option_text import OptionReader
from .base import Pass
from .options import REQUIRED, declared_options, print_value
from .registry import find


def parse_pipeline(text: str) -> list[Pass]:
    """The passes that a pipeline's text names. OptionError, with the place marked, for anything wrong with it."""
    reader = OptionReader(text)
    passes: list[Pass] = []
    while reader.kind != "end" or passes:
        passes.append(_read_pass(reader))
        if reader.kind == "end":
            break
        if reader.kind == "word" and reader.token == "?":
            name = passes[-1].name
            reader.fail(f"the question mark of an optional pass stands behind its name: write '{name}?{{…}}'")
        reader.expect(",", f"pass '{passes[-1].name}'")
    return passes


def print_pipeline(passes: Iterable[Pass], *, all_options: bool = False) -> str:
    """The normal form: options that differ from their defaults, in order of declaration; or all of them."""
    return ",".join(_print_pass(p, all_options) for p in passes)


def _print_pass(p: Pass, all_options: bool) -> str:
    declared = declared_options(type(p))
    shown = [
        f"{name}={print_value(value)}"
        for name, value in p.options().items()
        if all_options or declared[name].default is REQUIRED or value != declared[name].default
    ]
    name = f"{p.name}?" if p.optional else p.name
    return f"{name}{{{','.join(shown)}}}" if shown else name


def _read_pass(reader: OptionReader) -> Pass:
    word, name_at = reader.word("the name of a pass")
    name = word.removesuffix("?")
    try:
        cls = find(name)
    except OptionError as error:
        reader.fail(str(error), name_at)
    declared = declared_options(cls)

    def check(key: str, at: int) -> None:
        if key not in declared:
            hint = nearest(key, list(declared)) if declared else " (it has none)"
            reader.fail(f"pass '{name}' has no option '{key}'{hint}", at)

    values: dict[str, object] = {}
    for key, raw, at in reader.options(name, check):
        try:
            values[key] = declared[key].parse(raw)
        except OptionError as error:
            reader.fail(f"pass '{name}': {error}", at)
    missing = [o.describe() for o in declared.values() if o.default is REQUIRED and o.name not in values]
    if missing:
        reader.fail(f"pass '{name}' needs option {missing[0]}", name_at)
    try:
        made = cls(**values)
        return made.as_optional() if word != name else made
    except OptionError as error:
        reader.fail(str(error), name_at)
