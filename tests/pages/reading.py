"""What a page tells its reader to type, in order: commands and blocks of Python."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w*)\s*$")


@dataclass(frozen=True)
class Item:
    """``kind`` is ``sh`` (one command) or the language of a fenced block; ``line`` counts from 1."""

    kind: str
    text: str
    line: int

    @property
    def arguments(self) -> list[str]:
        """The words of a command, as a shell takes them; a comment is none."""
        return shlex.split(self.text, comments=True)

    @property
    def expected(self) -> int:
        """The exit status, 0 unless the comment behind the command says otherwise."""
        found = re.search(r"#.*\bexit(?: status)? (\d)", self.text)
        return int(found[1]) if found else 0


def items(path: Path) -> list[Item]:
    """Fenced blocks, and the commands (``boost-…``, ``make``, ``python``, ``pip``, ``msrun``) of indented ones."""
    found: list[Item] = []
    lines = path.read_text(encoding="utf-8").split("\n")
    k = 0
    while k < len(lines):
        start, fence = k, _FENCE.match(lines[k])
        k += 1
        if fence:
            while not _FENCE.match(lines[k]):
                k += 1
            body = lines[start + 1 : k]
            k += 1
            if fence[1] == "sh":
                found.extend(Item("sh", line.strip(), start + 2 + i) for i, line in enumerate(body) if line.strip())
            else:
                found.append(Item(fence[1], "\n".join(body) + "\n", start + 1))
        elif re.match(r"    (boost-(?!\w+: )|make |python|pip |msrun )", lines[start]):
            text = lines[start]
            while text.endswith("\\"):
                text = f"{text[:-1]} {lines[k].strip()}"
                k += 1
            found.append(Item("sh", text.strip(), start + 1))
    return found
