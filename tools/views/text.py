"""The text form, on a terminal in colour."""

from __future__ import annotations

import re

from ...ir.text import print_program
from .shown import Shown

_STYLES = {"string": "32", "comment": "2", "name": "36", "function": "35", "op": "1;34", "type": "33", "word": "1"}
_TOKENS = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*")'
    r"|(?P<comment>(?<!\S)//.*)"
    r"|(?P<name>%[\w.$/:-]*[\w.$/-])"
    r"|(?P<function>@[\w.$/:-]*[\w.$/-])"
    r"|(?P<op>(?<== )[A-Za-z_]\w*(?=\())"
    r"|(?P<type>\b(?:bool|u?int(?:8|16|32|64)|b?float(?:16|32|64)|complex(?:64|128)|string|umonad|iomonad)\b(?:\[[^\]]*\])?)"
    r"|(?P<word>\b(?:program|graph|func|state|const|return|target|pipeline|schedule|resources)\b)"
)


def text_of(shown: Shown, annotations: bool, *, data: bool) -> str:
    """``annotations``: the full form, which reads back as the same program; without ``data`` big tensors are left
    out."""
    return print_program(shown.program, annotations=annotations, resources=data)


def highlighted(text: str) -> str:
    """The text form with the escape sequences of a terminal."""
    return _TOKENS.sub(lambda m: f"\x1b[{_STYLES[m.lastgroup or 'word']}m{m.group()}\x1b[0m", text)
