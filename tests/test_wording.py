"""Messages count in English: "1 step", "2 steps"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from boost_compile.ir.core.wording import counted, sentence

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path for folder in ("boost_compile", "ir", "passes", "runtime", "tools") for path in (ROOT / folder).rglob("*.py")
)
NOUNS = """
    accumulators arrays axes batches biases branches buckets collectives columns constants copies cores cycles
    devices dimensions edges elements epochs files functions gradients graphs groups inputs layers lines links losses
    micro-batches nodes operands outputs parameters parts passes places primitives processes properties ranks reshapes
    rows runs samples scopes seeds sites states statistics steps tensors tests trials updates uses values variables
    variants weights
""".split()  # noqa: SIM905
COUNT = re.compile(r"((?: [a-z-]+){0,2}) (?:" + "|".join(NOUNS) + r")\b(?!/)")
OTHER = re.compile(r" (?:of the|has|holds|in|with|are|passes|runs|uses|of its|of these)\b")
"""What follows is a sentence about the value, not what is counted."""


def plurals(source: str) -> Iterator[str]:
    """f-strings in which a value that is a number stands before a noun in the plural, whatever the number is."""
    for string in ast.walk(ast.parse(source)):
        if isinstance(string, ast.JoinedStr):
            for value, after in zip(string.values, string.values[1:], strict=False):
                if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant) and is_number(value):
                    found = COUNT.match(str(after.value))
                    if found and not OTHER.match(found[0]):
                        yield f"line {string.lineno}: {{{ast.unparse(value.value)}}}{found[0]}"


def is_number(value: ast.FormattedValue) -> bool:
    """Whether it may be: not what is quoted, printed by a function, or a constant of ours."""
    inner = value.value
    if isinstance(inner, ast.Call):
        return isinstance(inner.func, ast.Name) and inner.func.id in ("len", "sum", "max", "min", "round")
    return value.conversion == -1 and not ast.unparse(inner).isupper()


def test_numbers_and_nouns_agree() -> None:
    """``counted(n, "step")`` of ir/core/wording.py gives "1 step" and "2 steps"."""
    found = [f"{p.relative_to(ROOT)}, {line}" for p in SOURCES for line in plurals(p.read_text(encoding="utf-8"))]
    assert found == []
    assert len(SOURCES) > 250
    assert list(plurals("f'{len(x)} gradients in {n} collectives'")) == [
        "line 1: {len(x)} gradients",
        "line 1: {n} collectives",
    ]


@pytest.mark.parametrize(
    ("n", "noun", "text"),
    [
        (1, "step", "1 step"),
        (0, "step", "0 steps"),
        (1200, "micro-batch", "1,200 micro-batches"),
        (2, "spatial axis", "2 spatial axes"),
        (2, "property", "2 properties"),
        (2, "array", "2 arrays"),
        (2, "loss", "2 losses"),
    ],
)
def test_counted(n: int, noun: str, text: str) -> None:
    assert counted(n, noun) == text


def test_sentence() -> None:
    assert sentence("try again.") == sentence("try again") == "try again."
