"""Faults made at random in compiled programs, and whether they are proved."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from boost_compile.tools.proof.run import prove

import boost_compile as bc

from .mutations import Mutation, batches, mutated, starting, told_apart

MATERIAL = Path(__file__).parents[2] / "material"


@cache
def _original(network: str) -> bc.Program:
    return bc.load(MATERIAL / f"{network}.ir")


@cache
def _compiled(network: str, pipeline: str) -> bc.Program | None:
    try:
        return bc.compile(_original(network), pipeline)
    except bc.Error:
        return None


def attack(seed: int, networks: Sequence[str], pipelines: Sequence[str]) -> tuple[str, str, Mutation, bool] | None:
    """One fault: where it was made, and whether it was proved. None where no fault came about, or where it changes
    nothing that execution sees."""
    rng = random.Random(seed)
    network, pipeline = rng.choice(networks), rng.choice(pipelines)
    program = _compiled(network, pipeline)
    found = None if program is None else mutated(program, rng)
    if program is None or found is None:
        return None
    given = batches(_original(network).graphs["step"], 4, seed)
    if not told_apart(program, found[0], given, starting(program, seed)):
        return None
    return network, pipeline, found[1], prove(_original(network), found[0], recheck=False).proved


def attacks(
    seeds: range, wanted: int, networks: Sequence[str], pipelines: Sequence[str]
) -> tuple[int, Counter[str], list[str]]:
    """So many faults that execution tells apart: their kinds, and those that were proved."""
    kinds: Counter[str] = Counter()
    proved: list[str] = []
    for seed in seeds:
        found = attack(seed, networks, pipelines)
        if found is None:
            continue
        kinds[found[2].kind] += 1
        if found[3]:
            proved.append(f"seed {seed}: {found[:3]}")
        if kinds.total() == wanted:
            break
    return kinds.total(), kinds, proved
