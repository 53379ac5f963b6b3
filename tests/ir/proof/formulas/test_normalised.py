"""A normalised head is proved against its formula; faults in it are not."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.proof.verdict import PURPOSE, RESULT, STATE
from boost_compile.passes.normalised_head import rewrite

import boost_compile as bc
from tests.ir.proof.attacks import attacks, load

CYCLES = (
    "",
    "gradient-accumulation{steps=2,split=fused},overflow-check,loss-scale",
    "data-parallel,clip-gradients{limit=0.05},gradient-accumulation{steps=2}",
)


@pytest.mark.parametrize("cycle", CYCLES)
@pytest.mark.parametrize("name", ["mlp_adam_decay", "lenet_bn"])
def test_a_normalised_head_is_proved(name: str, cycle: str) -> None:
    original = load(name)
    program = bc.compile(original, f"normalised-head,{cycle}".strip(","))
    found = bc.prove(original, program)
    assert found.proved, found
    (stated,) = (s for s in found.proof.stated if s.by == "normalised-head")
    (multiplier,) = stated.weights
    assert program.state[multiplier].type.shape == (1,)
    kinds = {(v.what, v.name): v.kind for v in found.proof.verdicts}
    weights = {n for n, v in original.state.items() if v.role == "weight"}
    assert {kinds[STATE, n] for n in (*weights, multiplier)} == {kinds[RESULT, "loss"]} == {PURPOSE}


def test_the_multiplier_begins_with_one() -> None:
    original = load("mlp")
    program = bc.compile(original, "normalised-head")
    found = bc.prove(original, program.with_values({"output.multiplier": np.float32([2])}))
    assert [v.name for v in found.proof.failures] == ["output.multiplier"]


def test_another_least_length_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    original = load("mlp")
    assert bc.prove(original, bc.compile(original, "normalised-head")).proved
    monkeypatch.setattr(rewrite, "EPSILON", 1e-3)
    assert not bc.prove(original, bc.compile(original, "normalised-head")).proved


@pytest.mark.parametrize(
    ("pipeline", "reason"),
    [("gradient-accumulation{steps=2}", "0 layers with a multiplier"), ("normalised-head{bias=drop}", "lost its bias")],
)
def test_what_has_no_law_says_so(pipeline: str, reason: str) -> None:
    original = load("mlp")
    program = bc.compile(original, pipeline)
    if "head" not in pipeline:
        program.reports += bc.compile(original, "normalised-head").reports
    found = bc.prove(original, program)
    assert not found.proved
    assert reason in repr(found)


def test_no_fault_in_a_normalised_head_is_proved() -> None:
    pipelines = ("normalised-head", "normalised-head,gradient-accumulation{steps=2}")
    total, kinds, through = attacks(range(400), 15, ("mlp", "mlp_adam_decay"), pipelines)
    assert through == []
    assert total == 15
    assert len(kinds) >= 4
