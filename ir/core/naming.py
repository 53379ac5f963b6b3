"""How names and strings are spelled in the text form, in types and in messages."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .names import LOSS

# A colon may stand inside a bare name but not end it, so that "%x: float32[2]" reads as one would think; two slashes
# start a comment.
_PART = r"(?:[A-Za-z0-9_.$\-]|/(?!/))+"
BARE_NAME = rf"{_PART}(?::+{_PART})*"
_BARE = re.compile(BARE_NAME)
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quote(text: str) -> str:
    """``text`` in double quotes; what does not print is escaped as ``\\xNN``, ``\\uNNNN`` or ``\\UNNNNNNNN``."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _escape(ord(c))) for c in text) + '"'


def printable(text: str) -> str:
    """``text`` on one line, escaped where it does not print: a name from a file cannot move a terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _ESCAPES.get(c) or _escape(ord(c)) for c in text)


def _escape(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def spell(name: str) -> str:
    """A name as the text form writes it: bare where it can be, else quoted."""
    return name if _BARE.fullmatch(name) else quote(name)


class UniqueNames:
    """Gives out names, each once: a name that is taken gets the first free suffix ``_1``, ``_2``, …

    ``reserved`` names are kept for who asks for exactly them, so the outcome does not depend on who clashes with whom.
    """

    def __init__(self, reserved: Iterable[str] = ()):
        self._reserved = set(reserved)
        self.taken: set[str] = set()
        self._serial: dict[str, int] = {}

    def claim(self, name: str) -> str:
        unique = name
        while unique in self.taken or (unique != name and unique in self._reserved):
            n = self._serial[name] = self._serial.get(name, 0) + 1
            unique = f"{name}_{n}"
        self.taken.add(unique)
        return unique


def result_names(n: int) -> tuple[str, ...]:
    """Names for ``n`` results of which nothing else is known: the first is the loss."""
    return (LOSS, *(f"output{i}" for i in range(1, n)))
