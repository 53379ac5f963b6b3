"""Gradient freeze: a cycle of variant k leaves some weights and their slots as they are, and updates the others.

With globs (``train``) the record of the pass says which. Without, the first layers are frozen, more of them in each
variant; which weights make a layer is not stated here, so the proof names those that it found.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

from ...core.variants import LISTED, Choice
from .statement import Stated

PASS = "gradient-freeze"


def objection(
    options: Mapping[str, Any], choice: Choice, trained: Sequence[str], frozen: Sequence[frozenset[str]]
) -> str:
    """Why variants that freeze these weights are not what the pass was asked for; "" where they are. ``trained``: the
    weights that the original updates."""
    numbers = list(range(choice.variants))
    if options["train"]:
        wanted = [frozenset[str]()]
        numbers = []
        for globs in options["train"]:
            kept = frozenset(trained) - {w for w in trained if any(fnmatchcase(w, g.strip()) for g in globs.split("|"))}
            if kept not in wanted:
                wanted.append(kept)
            numbers.append(wanted.index(kept))
        if wanted != list(frozen):
            return "its variants do not freeze what the globs of option 'train' leave out"
    elif frozen[0] or any(not a < b for a, b in pairwise(frozen)) or len(frozen[-1]) == len(trained):
        return "its variants do not freeze more and more weights"
    listed = options["strategy"] or (numbers and range(len(numbers)) if options["type"] == "round-robin" else ())
    again = options["after"] == "repeat"
    if listed:
        right = (choice.kind, choice.sequence) == (LISTED, tuple(numbers[k] for k in listed))
        right &= choice.repeat == (again or not options["strategy"])
    else:
        given = (choice.kind, choice.probability, choice.seed, choice.repeat, choice.cycles)
        asked = (options["type"], options["probability"], options["seed"], again, int(options["total_steps"] * 1.01))
        right = given == asked
    return "" if right else "the schedule does not choose variants as its options say"


def state(options: Mapping[str, Any], frozen: Sequence[Collection[str]]) -> list[Stated]:
    return [
        Stated(
            PASS,
            options,
            f"in cycles of variant {k}: these weights and their slots stay as they are",
            tuple(sorted(names)),
        )
        for k, names in enumerate(frozen)
        if names
    ]
