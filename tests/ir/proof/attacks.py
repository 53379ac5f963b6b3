"""Faults made at random in compiled programs: whether the prover proves them."""

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


def load(network: str) -> bc.Program:
    return bc.load(MATERIAL / f"{network}.ir")


_original = cache(load)


@cache
def _compiled(network: str, pipeline: str) -> bc.Program | None:
    try:
        return bc.compile(_original(network), pipeline)
    except bc.Error:
        return None


def attack(seed: int, networks: Sequence[str], pipelines: Sequence[str]) -> tuple[Mutation, str] | None:
    """One fault, and what it is where it is proved. None where no fault came about, or where it changes nothing that
    execution sees."""
    rng = random.Random(seed)
    network, pipeline = rng.choice(networks), rng.choice(pipelines)
    program = _compiled(network, pipeline)
    found = None if program is None else mutated(program, rng)
    if program is None or found is None:
        return None
    faulty, mutation = found
    original = _original(network)
    given = batches(original.graphs["step"], 4, seed)
    if not told_apart(program, faulty, given, starting(program, seed)):
        return None
    said = f"seed {seed}, {network}, {pipeline}, {mutation}"
    return mutation, said if prove(original, faulty).proved else ""


def attacks(
    seeds: range, wanted: int, networks: Sequence[str], pipelines: Sequence[str]
) -> tuple[int, Counter[str], list[str]]:
    """So many faults that execution tells apart: their kinds, and those that are proved."""
    kinds: Counter[str] = Counter()
    through: list[str] = []
    for seed in seeds:
        found = attack(seed, networks, pipelines)
        if found is None:
            continue
        kinds[found[0].kind] += 1
        through += filter(None, [found[1]])
        if kinds.total() == wanted:
            break
    return kinds.total(), kinds, through
