"""A JSON document read with plain checks: each error names the place inside the document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .errors import FormatError


class Document:
    """A value inside a JSON document. ``place`` is its path, such as ``$.graphs.step.file``."""

    def __init__(self, value: Any, place: str = "$"):
        self.value = value
        self.place = place

    @classmethod
    def parse(cls, text: str) -> Document:
        try:
            return cls(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"not a JSON document ({error}); the file is damaged: save the program again") from None

    def wrong(self, wanted: str) -> FormatError:
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
        return self.value

    def number(self) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            raise self.wrong("a number")
        return float(self.value)

    def one_of(self, known: tuple[str, ...]) -> str:
        if self.value not in known:
            raise self.wrong("one of " + ", ".join(known))
        return str(self.value)

    def optional_text(self) -> str | None:
        return None if self.value is None else self.text()
