"""Faults made at random: none that execution tells apart is proved."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from boost_compile.ir.proof.prover import prove

import boost_compile as bc

from .mutations import Mutation, batches, mutated, starting, told_apart

MATERIAL = Path(__file__).parents[2] / "material"
PIPELINES = (
    "common-subexpression-elimination,effect-chain-minimization,dead-code-elimination",
    "gradient-accumulation{steps=2}",
    "gradient-accumulation{steps=2,split=fused},loss-scale{mode=static,init=4.0}",
    "overflow-check,gradient-accumulation{steps=2},loss-scale",
    "overflow-check{policy=skip-micro},gradient-accumulation{steps=2}",
)
NETWORKS = ("mlp", "hand_momentum", "mlp_adam_decay", "gated_update", "branch", "clip_global_norm", "meters")


@cache
def _original(network: str) -> bc.Program:
    return bc.load(MATERIAL / f"{network}.ir")


@cache
def _compiled(network: str, pipeline: str) -> bc.Program | None:
    try:
        return bc.compile(_original(network), pipeline)
    except bc.Error:
        return None


def attack(seed: int) -> tuple[str, str, Mutation, bool] | None:
    """One fault: where it was made, and whether it was proved. None where no fault came about, or where it changes
    nothing that execution sees."""
    rng = random.Random(seed)
    network, pipeline = rng.choice(NETWORKS), rng.choice(PIPELINES)
    program = _compiled(network, pipeline)
    found = None if program is None else mutated(program, rng)
    if program is None or found is None:
        return None
    given = batches(_original(network).graphs["step"], 4, seed)
    if not told_apart(program, found[0], given, starting(program, seed)):
        return None
    return network, pipeline, found[1], prove(_original(network), found[0])[0].proved


def attacks(seeds: range, wanted: int) -> tuple[int, Counter[str], list[str]]:
    """So many faults that execution tells apart: their kinds, and those that were proved."""
    kinds: Counter[str] = Counter()
    proved: list[str] = []
    for seed in seeds:
        found = attack(seed)
        if found is None:
            continue
        kinds[found[2].kind] += 1
        if found[3]:
            proved.append(f"seed {seed}: {found[:3]}")
        if kinds.total() == wanted:
            break
    return kinds.total(), kinds, proved


@pytest.mark.parametrize("part", range(3))
def test_no_fault_that_shows_is_proved(part: int) -> None:
    total, kinds, proved = attacks(range(part * 10_000, part * 10_000 + 400), 25)
    assert proved == []
    assert total == 25
    assert len(kinds) >= 4


@pytest.mark.slow
def test_two_thousand_faults() -> None:
    total, kinds, proved = attacks(range(100_000, 130_000), 2000)
    assert proved == []
    assert total == 2000, kinds
