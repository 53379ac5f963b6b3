"""A cursor over text: tokens, and errors that show where they are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..core.errors import FormatError
from ..core.naming import BARE_NAME, printable

_SPACE = re.compile(r"(?:[ \t\r\n]+|//[^\n]*)*")
_BLANK = frozenset(" \t\r\n/")
_NAME = re.compile(BARE_NAME)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STRING = re.compile(r'"([^"\\\n]*)"|"((?:[^"\\\n]|\\.)*)"')
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_UNESCAPED = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
_WINDOW = 100
_DEPTH = 64
"""As deep as the reader of MindIR goes."""


class Scanner:
    """Skips white space and ``//`` comments in front of every token."""

    def __init__(self, text: str, source: str = "text"):
        self.text = text
        self.pos = 0
        self.source = source
        self.trailing = False
        """Whether a comma stood behind the last item of the list that was read last."""
        self._depth = 0

    def error(self, message: str, at: int | None = None) -> FormatError:
        """The error to raise; it shows the line of ``at`` (default: the next token) with a caret."""
        if at is None:
            self.skip()
            at = self.pos
        start = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        line = self.text[start : len(self.text) if end < 0 else end].rstrip("\r")
        number, column = self.text.count("\n", 0, at) + 1, at - start
        left = max(0, column - _WINDOW)
        shown = "".join([c if c.isprintable() else " " for c in line[left : column + _WINDOW]])
        lead, tail = "…" if left else "", "…" if column + _WINDOW < len(line) else ""
        caret = " " * (len(lead) + column - left) + "^"
        place = f"{self.source}:{number}:{column + 1}"
        return FormatError(f"{place}: {printable(message)}\n  {lead}{shown}{tail}\n  {caret}")

    def skip(self) -> None:
        if self.text[self.pos : self.pos + 1] not in _BLANK:
            return
        self.pos = _SPACE.match(self.text, self.pos).end()  # type: ignore[union-attr]

    def peek(self, token: str) -> bool:
        self.skip()
        return self.text.startswith(token, self.pos)

    def accept(self, token: str) -> bool:
        if self.peek(token):
            self.pos += len(token)
            return True
        return False

    def listed(self, end: str, where: str = "") -> Iterator[None]:
        """Once for each item of a list, with commas between them and perhaps behind the last; takes ``end``."""
        while not self.peek(end):
            yield
            self.trailing = self.accept(",")
            if not self.trailing:
                break
        self.expect(end, where)

    def expect(self, token: str, where: str = "") -> None:
        if not self.accept(token):
            raise self.error(f"expected '{token}'{' ' + where if where else ''}, found {self.found()}")

    def found(self) -> str:
        """The text at the next token, for messages."""
        self.skip()
        if self.pos >= len(self.text):
            return "the end of the text"
        match = _STRING.match(self.text, self.pos) or _NAME.match(self.text, self.pos)
        token = match.group() if match else self.text[self.pos]
        return f"'{token[:40]}{'…' if len(token) > 40 else ''}'"

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.skip()
        match = pattern.match(self.text, self.pos)
        if match:
            self.pos = match.end()
        return match

    def end_of_line(self) -> None:
        """A statement ends where its line does, or at the brace that closes its block."""
        self.skip()
        start = self.text.rfind("\n", 0, self.pos) + 1
        if self.pos < len(self.text) and self.text[start : self.pos].strip() and self.text[self.pos] != "}":
            raise self.error(f"expected the end of the line, found {self.found()}")

    def at_end(self) -> bool:
        self.skip()
        return self.pos >= len(self.text)

    def peek_word(self) -> str:
        """The next token if it is a word (letters, digits, underscores), else an empty string."""
        self.skip()
        match = _WORD.match(self.text, self.pos)
        return match.group() if match else ""

    def accept_word(self, word: str) -> bool:
        if self.peek_word() == word:
            self.pos += len(word)
            return True
        return False

    def truth(self) -> bool | None:
        """``true`` or ``false``; None where neither stands here."""
        if self.accept_word("true"):
            return True
        return False if self.accept_word("false") else None

    def marked_name(self, mark: str, what: str) -> str:
        """A name behind its mark: ``%`` of a value, ``@`` of a graph."""
        self.expect(mark, f"before {what}")
        return self.name(what)

    def name(self, what: str) -> str:
        """A bare or quoted name."""
        match = self.match(_NAME)
        if match:
            return match.group()
        if self.peek('"'):
            return self.string()
        raise self.error(f"expected {what}, found {self.found()}")

    def string(self) -> str:
        return self.unescape(self._quoted())

    def quoted_bytes(self) -> bytes:
        """The string after a ``b``; every character must fit a byte."""
        at = self.pos
        try:
            return self.unescape(self._quoted()).encode("latin-1")
        except UnicodeEncodeError:
            raise self.error("a byte string holds characters above \\xff", at) from None

    def _quoted(self) -> str:
        match = self.match(_STRING)
        if match:
            return match.group()[1:-1]
        if self.peek('"'):
            raise self.error("this string does not end on its line")
        raise self.error(f"expected a string in double quotes, found {self.found()}")

    def unescape(self, body: str) -> str:
        if "\\" not in body:
            return body

        def one(match: re.Match[str]) -> str:
            code = match.group(1)
            if len(code) > 1:
                number = int(code[1:], 16)
                if number <= 0x10FFFF and not 0xD800 <= number < 0xE000:  # half a character: no file can hold it
                    return chr(number)
            elif code in _UNESCAPED:
                return _UNESCAPED[code]
            raise self.error(f"unknown escape '\\{code}' in a string", self.pos - 1)

        return _ESCAPE.sub(one, body)

    def enter(self) -> None:
        """Counts nesting, so that hostile input cannot exhaust the stack."""
        self._depth += 1
        if self._depth > _DEPTH:
            raise self.error(f"nested more than {_DEPTH} deep")

    def leave(self) -> None:
        self._depth -= 1
