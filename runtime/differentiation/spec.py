"""The text form of losses and optimizers: ``momentum{lr=0.01,momentum=0.9}``, as passes are in a pipeline."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ...ir.core.errors import OptionError

_TOKEN = re.compile(r'\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<word>[^\s,={}\[\]"]+)|(?P<mark>.)|$)')
_WORDS = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class Spec:
    """A name and its options: numbers, ``true``, ``false``, ``none``, strings, and lists of them."""

    name: str
    options: dict[str, Any]


def parse_spec(text: str, what: str) -> Spec:
    """``what`` is said in errors: "loss", "optimizer"."""
    tokens = [m for m in _TOKEN.finditer(text) if m.lastgroup]
    at = 0

    def fail(expected: str) -> OptionError:
        found = f"'{tokens[at].group(tokens[at].lastgroup or 0)}'" if at < len(tokens) else "the end"
        return OptionError(f"{what} '{text}': expected {expected}, found {found}. Write NAME{{OPTION=VALUE,…}}.")

    def take(kind: str, expected: str) -> str:
        nonlocal at
        mark = kind not in ("word", "quoted")
        if at == len(tokens) or tokens[at].lastgroup != ("mark" if mark else kind):
            raise fail(expected)
        token = tokens[at].group(tokens[at].lastgroup or 0)
        if mark and token != kind:
            raise fail(expected)
        at += 1
        return token

    def value() -> Any:
        if at < len(tokens) and tokens[at].group("mark") == "[":
            take("[", "'['")
            found: list[Any] = []
            while at < len(tokens) and tokens[at].group("mark") != "]":
                if found:
                    take(",", "',' or ']'")
                found.append(value())
            take("]", "']'")
            return found
        if at < len(tokens) and tokens[at].lastgroup == "quoted":
            try:
                return json.loads(take("quoted", "a value"))
            except ValueError:
                raise OptionError(f"{what} '{text}': not a valid quoted string") from None
        return _scalar(take("word", "a value"))

    name = take("word", f"the name of a {what}")
    options: dict[str, Any] = {}
    if at < len(tokens):
        take("{", "'{' after the name")
        while at < len(tokens) and tokens[at].group("mark") != "}":
            if options:
                take(",", "',' or '}'")
            key = take("word", "an option")
            if key in options:
                raise OptionError(f"{what} '{text}': option '{key}' is given twice")
            take("=", f"'=' after '{key}'")
            options[key] = value()
        take("}", "'}' at the end")
        if at < len(tokens):
            raise fail("the end")
    return Spec(name, options)


def _scalar(word: str) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
