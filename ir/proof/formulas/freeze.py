"""Freezing: a program leaves some weights as they are, for good or in the cycles of a variant, and updates the others.

Who is frozen for good (``freeze``) is said by globs. Its slots may be gone. In gradient-freeze, a cycle of variant k
leaves weights and their slots as they are.
With globs (``train``) the record of the pass says which. Without, the first layers are frozen, more of them in each
variant; which weights make a layer is not stated here, so the proof names those that it found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

from ...core.program import Program
from ...core.variants import LISTED, Choice
from . import lora
from .statement import Stated

PASS, FOR_GOOD = "gradient-freeze", "freeze"


def for_good(program: Program, weights: Iterable[str]) -> frozenset[str]:
    """Those of the weights that are not trained any more."""
    weights = list(weights)
    globs = [g for r in program.reports if r.name == FOR_GOOD for g in r.options.get("match", ())]
    return frozenset(w for w in weights if any(fnmatchcase(w, g) for g in globs)) | lora.still(program, weights)


def by(program: Program, weight: str) -> str:
    """The pass by which a weight is not trained any more."""
    return lora.PASS if lora.still(program, [weight]) else FOR_GOOD


def gone(original: Program, program: Program) -> set[str]:
    """The slots that go with the updates of weights."""
    slots = {n: v.weight for n, v in original.state.items() if v.role == "slot" and n not in program.state}
    frozen = for_good(program, {*slots.values()} - {""})
    return {n for n, weight in slots.items() if weight in frozen}


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


def state_for_good(program: Program, names: frozenset[str]) -> list[Stated]:
    """``names``: the weights that are frozen for good."""
    says = "these weights stay as they are, and nothing takes their gradients"
    found = []
    for by, of in ((FOR_GOOD, names - lora.still(program, names)), (lora.PASS, lora.still(program, names))):
        options = next((r.options for r in program.reports if r.name == by), {})
        found += [Stated(by, options, says, tuple(sorted(of)))] if of else []
    return found


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
