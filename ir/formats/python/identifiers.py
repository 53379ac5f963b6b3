"""Identifiers for generated source. Names of a file are hints at most: what comes out here is plain ASCII, unique, and
neither a keyword, a builtin, nor an attribute that MindSpore's Cell uses itself."""

from __future__ import annotations

import builtins
import keyword
import re
from importlib import resources

_CELL = frozenset((resources.files(__package__) / "cell_attributes.txt").read_text("ascii").split())
"""Attributes of ``mindspore.nn.Cell`` (2.10)."""

_SOURCE = frozenset({
    "self", "state", "primitive", "function", "tensor", "State", "Network", "load", "np", "ms", "nn",
    "ops", "json", "inspect", "Path", "Tensor", "Parameter", "Cell", "Primitive", "safe_open", "auto_generate",
    "operations", "INF", "NAN", "word", "construct",
})  # fmt: skip
"""Names that the source itself uses."""

RESERVED = frozenset((*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *_CELL, *_SOURCE))
_LONGEST = 40


def is_plain(name: str) -> bool:
    """Whether ``name`` can stand as a keyword argument as it is."""
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name)) and "__" not in name and not keyword.iskeyword(name)


def attribute(hint: str) -> str:
    """``hint`` where it can name an attribute, so that names stay those of the network; else as :func:`snake`."""
    plain = re.fullmatch(r"_?[A-Za-z][A-Za-z0-9_]*", hint) and "__" not in hint and len(hint) <= _LONGEST
    return hint if plain else snake(hint)


def snake(hint: str) -> str:
    """``BatchNorm2d`` as ``batch_norm2d``; letters, digits and single underscores only, beginning with a letter."""
    words = re.sub(r"(?<=[A-Za-z])(?=[A-Z][a-z])", "_", re.sub(r"[^A-Za-z0-9]+", "_", hint))
    return _trimmed(words.lower()) or "value"


def camel(hint: str) -> str:
    """``basic_block`` as ``BasicBlock``."""
    parts = [p for p in re.split(r"[^A-Za-z0-9]+", hint) if p]
    return _trimmed("".join(p[0].upper() + p[1:] for p in parts)) or "Part"


def _trimmed(name: str) -> str:
    return re.sub(r"__+", "_", name).lstrip("_0123456789")[:_LONGEST].rstrip("_")


class Identifiers:
    """Gives out names, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._serial: dict[str, int] = {}

    def claim(self, name: str) -> str:
        """``name``, an identifier, or the first free of ``name_2``, ``name_3``, …"""
        unique = name
        while unique in self._taken or unique in RESERVED:
            n = self._serial[name] = self._serial.get(name, 1) + 1
            unique = f"{name.rstrip('_')}_{n}"  # two underscores in a row would have a meaning for Python
        self._taken.add(unique)
        return unique
