"""Delta debugging (Zeller and Hildebrandt, 2002): the fewest of some items that still show a failure.

Own code because no library fits: picire imports ``pkg_resources``, which setuptools no longer has, and repeats every
test that succeeds; lithium needs a driver for browsers; shrinkray is an application for files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def minimize(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A part of ``items``, in order, that still fails and of which no single item can be left out.

    All of them must fail. Large parts are left out first: of n items of which m are needed, about m log n tests.
    Deterministic, and no part is tried twice.
    """
    kept = list(range(len(items)))
    tried: set[tuple[int, ...]] = set()

    def test(candidate: list[int]) -> bool:
        key = tuple(candidate)
        if key in tried:
            return False
        tried.add(key)
        return fails([items[i] for i in candidate])

    if kept and test([]):
        return []
    size = max(len(kept) // 2, 1)
    while kept:
        start, before = 0, len(kept)
        while start < len(kept):
            candidate = kept[:start] + kept[start + size :]
            if candidate and test(candidate):
                kept = candidate  # what follows has moved up to ``start``
            else:
                start += size
        if size > 1:
            size = max(size // 2, 1)
        elif len(kept) == before:
            break
    return [items[i] for i in kept]
