"""The text form of losses and optimizers: ``momentum{lr=0.01,momentum=0.9}``, as passes are in a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .option_text import OptionReader, Raw

_WORDS = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class Spec:
    """A name and its options: numbers, ``true``, ``false``, ``none``, strings, and lists of them."""

    name: str
    options: dict[str, Any]


def parse_spec(text: str, what: str) -> Spec:
    """``what`` is said in errors: "loss", "optimizer"."""
    reader = OptionReader(text, f"{what}: ")
    name, _ = reader.word(f"the name of the {what}")
    options = {key: _plain(raw) for key, raw, _ in reader.options(name)}
    if reader.kind != "end":
        reader.fail(f"expected the end, found {reader.found}")
    return Spec(name, options)


def _plain(raw: Raw) -> Any:
    if raw.elements is not None:
        return [_plain(element) for element in raw.elements]
    return raw.text if raw.quoted else _scalar(raw.text)


def _scalar(word: str) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
