"""Pipeline text: ``gradient-accumulation{steps=4,reduction=mean},overflow-check`` to passes and back.

    pipeline = [pass {"," pass}]
    pass     = name ["?"] ["{" [option {"," option}] "}"]
    option   = name "=" value
    value    = word | "quoted" | "[" [value {"," value}] "]"

White space between them means nothing. Quoted strings are JSON's. A pass with ``?`` is optional: where it matches
nothing, that is a warning and no error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NoReturn

from ...ir.core.errors import OptionError, nearest
from .base import Pass
from .options import REQUIRED, Raw, declared_options, print_value
from .registry import find

_TOKEN = re.compile(r'\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<word>[^\s,={}\[\]"]+)|(?P<mark>.)|$)')


def parse_pipeline(text: str) -> list[Pass]:
    """The passes that a pipeline's text names. OptionError, with the place marked, for anything wrong with it."""
    return _Parser(text).pipeline()


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


class _Parser:
    def __init__(self, text: str):
        self.text = " ".join(text.splitlines()) if "\n" in text else text
        self.kind, self.token, self.start, self.at = "", "", 0, 0
        self.advance()

    def advance(self) -> None:
        match = _TOKEN.match(self.text, self.at)
        assert match is not None
        self.kind = match.lastgroup or "end"
        self.token = match.group(self.kind) if match.lastgroup else ""
        self.start, self.at = match.end() - len(self.token), match.end()

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        column = self.start if at is None else at
        raise OptionError(f"{message}\n  {self.text}\n  {' ' * column}^")

    def take(self, mark: str) -> bool:
        """Steps over a mark if it stands here."""
        if self.kind == "mark" and self.token == mark:
            self.advance()
            return True
        return False

    def expect(self, mark: str, after: str) -> None:
        if not self.take(mark):
            found = f"'{self.token}'" if self.token else "the end"
            self.fail(f"expected '{mark}' after {after}, found {found}")

    def word(self, what: str) -> tuple[str, int]:
        if self.kind != "word":
            found = f"'{self.token}'" if self.token else "the end"
            self.fail(f"expected {what}, found {found}")
        word, at = self.token, self.start
        self.advance()
        return word, at

    def pipeline(self) -> list[Pass]:
        passes: list[Pass] = []
        if self.kind == "end":
            return passes
        while True:
            passes.append(self.one_pass())
            if self.kind == "end":
                return passes
            self.expect(",", f"pass '{passes[-1].name}'")

    def one_pass(self) -> Pass:
        word, name_at = self.word("the name of a pass")
        name = word.removesuffix("?")
        try:
            cls = find(name)
        except OptionError as error:
            self.fail(str(error), name_at)
        declared = declared_options(cls)
        values: dict[str, object] = {}
        if self.take("{") and not self.take("}"):
            while True:
                key, key_at = self.word(f"an option of '{name}'")
                if key not in declared:
                    hint = nearest(key, list(declared)) if declared else " (it has none)"
                    self.fail(f"pass '{name}' has no option '{key}'{hint}", key_at)
                if key in values:
                    self.fail(f"option '{key}' is given twice", key_at)
                self.expect("=", f"option '{key}'")
                value_at = self.start
                try:
                    values[key] = declared[key].parse(self.value())
                except OptionError as error:
                    if "\n" in str(error):
                        raise
                    self.fail(f"pass '{name}': {error}", value_at)
                if self.take("}"):
                    break
                self.expect(",", f"option '{key}' (or '}}')")
        missing = [o.describe() for o in declared.values() if o.default is REQUIRED and o.name not in values]
        if missing:
            self.fail(f"pass '{name}' needs option {missing[0]}", name_at)
        try:
            made = cls(**values)
            return made.as_optional() if word != name else made
        except OptionError as error:
            self.fail(str(error), name_at)

    def value(self, depth: int = 0) -> Raw:
        if self.kind == "quoted":
            try:
                text = json.loads(self.token)
            except ValueError:
                self.fail("not a valid quoted string")
            self.advance()
            return Raw(text, quoted=True)
        if not self.take("["):
            return Raw(self.word("a value")[0])
        if depth > 1:  # no option takes more than a list
            self.fail("lists are nested too deeply")
        elements: list[Raw] = []
        while not self.take("]"):
            if elements:
                self.expect(",", "a list's element (or ']')")
            elements.append(self.value(depth + 1))
        return Raw("", elements=tuple(elements))
