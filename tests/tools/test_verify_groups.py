"""boost-verify of parameter-groups: the group's own rate and decay pass, any other does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.tools.verification.report import FAILED

import boost_compile as bc

NONE = "dead-code-elimination"


@pytest.mark.parametrize(
    ("case", "asked", "other"),
    [
        # The rate of the first step of a warm-up is zero: the verifier has to let weights move.
        ("mlp_adam_weight_decay_warmup", "match=[*.weight],lr_factor=0.5", "match=[*.weight],lr_factor=0.25"),
        ("mlp_adam_weight_decay_warmup", "weight_decay=0.5", "weight_decay=0.5,lr_factor=0.5"),
        ("mlp", "match=[*.weight],lr_factor=2.0", None),
        ("mlp", "weight_decay=0.5", "weight_decay=0.25"),
        ("mlp", "weight_decay=0.5", None),
        # Instead of the decay of the file, not beside it.
        ("mlp_momentum_decay", "weight_decay=0.5", "weight_decay=0.51"),
        ("mlp_momentum_decay", "weight_decay=0.0", None),
        # AdamWeightDecay decays apart from the gradient.
        (
            "mlp_adam_weight_decay",
            "match=[*.weight],lr_factor=0.5,weight_decay=0.1",
            "match=[*.weight],lr_factor=0.25,weight_decay=0.1",
        ),
    ],
)
def test_a_group_is_judged(case: str, asked: str, other: str | None, exported: Callable[[str], Path]) -> None:
    original = bc.load(str(exported(case)))
    program = bc.compile(original, f"parameter-groups{{{asked}}}")
    found = bc.verify(original, program, bisect=False)
    assert found.verified, found
    assert "not compared" not in found.result("different micro-batches").detail
    wrong = bc.compile(original, NONE if other is None else f"parameter-groups{{{other}}}")
    wrong.pipeline = program.pipeline
    assert bc.verify(original, wrong, bisect=False).result("other weights").status == FAILED
