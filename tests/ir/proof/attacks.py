"""Faults made at random in compiled programs: whether the prover proves them, and whether the checker believes what
the certificate of the program without the fault says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from boost_compile.tools.proof.run import SEED, base_of, prove
from boost_compile.tools.recheck.checker import check

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


@cache
def _certificate(network: str, pipeline: str) -> dict[str, Any]:
    program = _compiled(network, pipeline)
    assert program is not None
    return prove(_original(network), program, recheck=False).certificate


def attack(seed: int, networks: Sequence[str], pipelines: Sequence[str]) -> tuple[Mutation, list[str]] | None:
    """One fault, and who does not see it. None where no fault came about, or where it changes nothing that execution
    sees."""
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
    blind = ["prover"] if prove(original, faulty, recheck=False).proved else []
    with suppress(bc.Error):
        check(_certificate(network, pipeline), base_of(original, faulty), faulty, SEED)
        blind.append("checker")
    return mutation, [f"seed {seed}, {network}, {pipeline}, {mutation}: {who}" for who in blind]


def attacks(
    seeds: range, wanted: int, networks: Sequence[str], pipelines: Sequence[str]
) -> tuple[int, Counter[str], list[str]]:
    """So many faults that execution tells apart: their kinds, and those that the prover or the checker let through."""
    kinds: Counter[str] = Counter()
    through: list[str] = []
    for seed in seeds:
        found = attack(seed, networks, pipelines)
        if found is None:
            continue
        kinds[found[0].kind] += 1
        through += found[1]
        if kinds.total() == wanted:
            break
    return kinds.total(), kinds, through
