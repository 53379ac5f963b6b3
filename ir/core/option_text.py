"""The text of something with options, as passes, losses and optimizers are written: ``name{option=value,…}``.

    options = ["{" [option {"," option}] "}"]
    option  = name "=" value
    value   = word [options] | "quoted" | "[" [value {"," value}] "]"

White space between them means nothing. Quoted strings are JSON's. A word with options of its own is the text of both,
without white space: ``to=lion{lr = 0.01}`` is ``to="lion{lr=0.01}"``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from .errors import OptionError

_TOKEN = re.compile(r'\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<word>[^\s,={}\[\]"]+)|(?P<mark>.)|$)')


@dataclass(frozen=True, slots=True)
class Raw:
    """A value as it stands in the text: a word, a quoted string, or a list."""

    text: str
    quoted: bool = False
    elements: tuple[Raw, ...] | None = None


class OptionReader:
    """Reads such a text from its start; ``kind``, ``token`` and ``start`` are those of what comes next. ``what`` begins
    the errors, which are OptionErrors that mark the place."""

    def __init__(self, text: str, what: str = ""):
        self.text = " ".join(text.splitlines()) if "\n" in text else text
        self.what = what
        self.kind, self.token, self.start, self._at = "", "", 0, 0
        self._advance()

    def _advance(self) -> None:
        match = _TOKEN.match(self.text, self._at)
        assert match is not None
        self.kind = match.lastgroup or "end"
        self.token = match.group(self.kind) if match.lastgroup else ""
        self.start, self._at = match.end() - len(self.token), match.end()

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        column = self.start if at is None else at
        raise OptionError(f"{self.what}{message}\n  {self.text}\n  {' ' * column}^")

    def take(self, mark: str) -> bool:
        """Steps over a mark if it stands here."""
        if self.kind == "mark" and self.token == mark:
            self._advance()
            return True
        return False

    def expect(self, mark: str, after: str) -> None:
        if not self.take(mark):
            self.fail(f"expected '{mark}' after {after}, found {self.found}")

    @property
    def found(self) -> str:
        return f"'{self.token}'" if self.token else "the end"

    def word(self, what: str) -> tuple[str, int]:
        """A word, and where it stands."""
        if self.kind != "word":
            self.fail(f"expected {what}, found {self.found}")
        word, at = self.token, self.start
        self._advance()
        return word, at

    def options(
        self, of: str, check: Callable[[str, int], None] | None = None, depth: int = 0
    ) -> Iterator[tuple[str, Raw, int]]:
        """The options that stand here, each with its value and the value's place. ``check`` looks at a name and its
        place before the value is read. ``depth``: how many lists and options they stand in."""
        seen: set[str] = set()
        if not self.take("{") or self.take("}"):
            return
        while True:
            key, at = self.word(f"an option of '{of}'")
            if check is not None:
                check(key, at)
            if key in seen:
                self.fail(f"option '{key}' is given twice", at)
            seen.add(key)
            self.expect("=", f"option '{key}'")
            at = self.start
            yield key, self.value(depth), at
            if self.take("}"):
                return
            self.expect(",", f"option '{key}' (or '}}')")

    def value(self, depth: int = 0) -> Raw:
        if self.kind == "quoted":
            try:
                text = json.loads(self.token)
            except ValueError:
                self.fail("not a valid quoted string")
            self._advance()
            return Raw(text, quoted=True)
        if not self.take("["):
            return self._something(depth)
        if depth > 1:  # no option takes more than a list
            self.fail("lists are nested too deeply")
        elements: list[Raw] = []
        while not self.take("]"):
            if elements:
                self.expect(",", "a list's element (or ']')")
            elements.append(self.value(depth + 1))
        return Raw("", elements=tuple(elements))

    def _something(self, depth: int) -> Raw:
        """A word; if options of its own follow, the text of both."""
        word, _ = self.word("a value")
        if not (self.kind == "mark" and self.token == "{"):
            return Raw(word)
        if depth > 1:  # an optimizer has no options that have options
            self.fail("options are nested too deeply")
        options = [f"{key}={_printed(raw)}" for key, raw, _ in self.options(word, depth=depth + 1)]
        return Raw(f"{word}{{{','.join(options)}}}" if options else word)


def _printed(raw: Raw) -> str:
    if raw.elements is not None:
        return f"[{','.join(map(_printed, raw.elements))}]"
    return json.dumps(raw.text, ensure_ascii=False) if raw.quoted else raw.text
