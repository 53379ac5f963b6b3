"""A JSON document read with plain checks: each error names the place inside the document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ..core.errors import FormatError

DEEPEST = 32
"""Nesting of what a document may say freely (notes of an exporter, statistics of a pass)."""
LARGEST = 1e300
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


class Document:
    """A value inside a JSON document. ``place`` is its path, such as ``$.graphs.step.file``."""

    def __init__(self, value: Any, place: str = "$"):
        self.value = value
        self.place = place

    @classmethod
    def parse(cls, text: str) -> Document:
        try:
            value = json.loads(text)
            if _HALF.search(text):
                # Half of a surrogate pair stands for no character, and could be written nowhere.
                json.dumps(value, ensure_ascii=False).encode()
            return cls(value)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"not a JSON document ({error}): the file is damaged") from None

    def wrong(self, wanted: str) -> FormatError:
        if isinstance(self.value, (dict, list)):
            shown = f"{'an object' if isinstance(self.value, dict) else 'a list'} of {len(self.value)}"
        else:
            shown = json.dumps(self.value)
        return FormatError(f"{self.place}: expected {wanted}, found {shown if len(shown) < 60 else shown[:57] + '...'}")

    def __getitem__(self, key: str) -> Document:
        fields = self.object()
        if key not in fields:
            raise FormatError(f"{self.place}: '{key}' is missing")
        return Document(fields[key], f"{self.place}.{key}")

    def object(self) -> dict[str, Any]:
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return self.value

    def free(self) -> dict[str, Any]:
        """An object that may hold anything, but not too deep: whoever walks it need not count."""
        level: list[Any] = [self.object()]
        for _ in range(DEEPEST):
            level = [
                inner
                for value in level
                for inner in (value.values() if isinstance(value, dict) else value)
                if isinstance(inner, (dict, list))
            ]
            if not level:
                return self.object()
        raise self.wrong(f"at most {DEEPEST} levels")

    def items(self) -> Iterator[tuple[str, Document]]:
        for key, value in self.object().items():
            yield key, Document(value, f"{self.place}.{key}")

    def list(self) -> list[Document]:
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return [Document(v, f"{self.place}[{i}]") for i, v in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.wrong("a string")
        return self.value

    def texts(self) -> tuple[str, ...]:
        return tuple([v.text() for v in self.list()])

    def integer(self, least: int) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int) or self.value < least:
            raise self.wrong(f"a whole number, at least {least}")
        if self.value >= 2**63:
            raise self.wrong("a whole number of 64 bits")
        return self.value

    def number(self) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            raise self.wrong("a number")
        if not abs(self.value) <= LARGEST:
            raise self.wrong("a finite number")
        return float(self.value)

    def truth(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def one_of(self, known: tuple[str, ...]) -> str:
        if not isinstance(self.value, str) or self.value not in known:
            raise self.wrong("one of " + ", ".join(known))
        return str(self.value)
