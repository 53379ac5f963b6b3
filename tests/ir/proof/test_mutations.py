"""Faults made at random: none that execution tells apart is proved."""

from __future__ import annotations

import pytest

from .attacks import attacks

PIPELINES = (
    "common-subexpression-elimination,effect-chain-minimization,dead-code-elimination",
    "gradient-accumulation{steps=2}",
    "gradient-accumulation{steps=2,split=fused},loss-scale{mode=static,init=4.0}",
    "overflow-check,gradient-accumulation{steps=2},loss-scale",
    "overflow-check{policy=skip-micro},gradient-accumulation{steps=2}",
    "overflow-check{policy=skip-micro},gradient-accumulation{steps=2,split=fused}",
    "overflow-check,gradient-accumulation{steps=2,reduction=weighted,weight=inputs0,split=fused},data-parallel",
)
NETWORKS = ("mlp", "hand_momentum", "mlp_adam_decay", "gated_update", "branch", "clip_global_norm", "meters")


@pytest.mark.parametrize("part", range(3))
def test_no_fault_that_shows_is_proved(part: int) -> None:
    total, kinds, proved = attacks(range(part * 10_000, part * 10_000 + 400), 25, NETWORKS, PIPELINES)
    assert proved == []
    assert total == 25
    assert len(kinds) >= 4


def test_no_fault_is_proved_where_the_original_skips_its_updates_itself() -> None:
    """The prover takes both cases of the original's own check, and the checker knows its condition as a condition."""
    pipelines = ("overflow-check", "weight-average", "weight-average{kind=lookahead,every=1}", PIPELINES[0])
    total, kinds, proved = attacks(range(40_000, 40_400), 20, ("mlp_loss_scale_dynamic",), pipelines)
    assert proved == []
    assert total == 20
    assert len(kinds) >= 4


@pytest.mark.slow
def test_two_thousand_faults() -> None:
    total, kinds, proved = attacks(range(100_000, 130_000), 2000, NETWORKS, PIPELINES)
    assert proved == []
    assert total == 2000, kinds
