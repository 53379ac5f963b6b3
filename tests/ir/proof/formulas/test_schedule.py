"""A schedule is proved against the numbers that its options say; other numbers, and faults in it, are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.proof.verdict import PURPOSE, SAME

import boost_compile as bc
from tests.ir.proof.attacks import attacks, load

TESTS = Path(__file__).parents[3]
COSINE = "schedule{total=20,warmup=3}"
CYCLES = (
    "",
    "gradient-accumulation{steps=2,split=fused},overflow-check,loss-scale",
    "overflow-check{policy=skip-micro},gradient-accumulation{steps=2}",
    "data-parallel,clip-gradients{limit=0.05},parameter-groups{match=[*.bias],lr_factor=2.0}",
)


@pytest.mark.parametrize("cycle", CYCLES)
@pytest.mark.parametrize("name", ["mlp", "mlp_adam_decay"])
def test_a_schedule_is_proved(name: str, cycle: str) -> None:
    original = load(name)
    found = bc.prove(original, bc.compile(original, f"{COSINE},{cycle}".strip(",")))
    assert found.proved, found
    stated = found.proof.stated[0]
    assert stated.by == "schedule"
    assert set(stated.weights) == {n for n, v in original.state.items() if v.role == "weight"}
    kinds = {v.name: v.kind for v in found.proof.verdicts}
    assert kinds["hidden.weight"] == kinds["learning_rate"] == PURPOSE
    assert kinds["loss"] == kinds["schedule.rates"] == SAME


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("schedule{kind=linear,total=4,lr=0.5,end=0.2}", [0.5, 0.4, 0.3, 0.2, 0.1]),
        ("schedule{kind=table,table=[0.4,0.0,0.3]}", [0.4, 0.0, 0.3]),
        ("schedule{kind=constant,lr=0.5,warmup=2,start=0.2}", [0.1, 0.3, 0.5]),
        ("schedule{total=4,warmup=2,lr=1.0}", [0, 0.5, 1, 0.5, 0]),
        ("schedule{kind=one-cycle,total=4,warmup=2,lr=1.0}", [0.04, 0.52, 1, 0.500002, 0.000004]),
    ],
)
def test_the_numbers_are_those_of_the_options(schedule: str, rates: list[float]) -> None:
    """Written down by hand; a list that is off by a ten-thousandth of its largest in one place is another one."""
    original = load("mlp")
    program = bc.compile(original, schedule)
    table = program.state["schedule.rates"].initial
    assert np.allclose(table, rates, rtol=1e-6)
    assert bc.prove(original, program).proved
    for i in range(len(rates)):
        other = table.copy()
        other[i] += 1e-4 * max(rates)
        found = bc.prove(original, program.with_values({"schedule.rates": other}))
        assert [v.name for v in found.proof.failures] == ["schedule.rates"]


@pytest.mark.parametrize(
    "options", [{"total": 21}, {"warmup": 2}, {"kind": "linear"}, {"lr": 0.2}, {"end": 0.5}, {"start": 0.5}]
)
def test_other_options_are_another_schedule(options: dict[str, object]) -> None:
    original = load("mlp")
    program = bc.compile(original, f"{COSINE},gradient-accumulation{{steps=2}}")
    next(r for r in program.reports if r.name == "schedule").options.update(options)
    assert not bc.prove(original, program).proved


@pytest.mark.parametrize("cycle", ["", "overflow-check,gradient-accumulation{steps=2}"])
def test_rates_of_groups_keep_their_ratios(cycle: str) -> None:
    """One is a state, one a constant; and the file counts no updates."""
    original = bc.load(TESTS / "passes" / "schedule.ir")
    program = bc.compile(original, f"schedule{{kind=table,table=[0.4,0.2]}},{cycle}".strip(","))
    found = bc.prove(original, program)
    assert found.proved, found
    one, other = program.state["schedule.rates"], program.state["schedule.rates.1"]
    exchanged = program.with_values({"schedule.rates": other.initial, "schedule.rates.1": one.initial})
    assert not bc.prove(original, exchanged).proved


@pytest.mark.parametrize("frozen", ["w", "b"])
def test_a_rate_goes_with_the_weights_that_are_frozen(frozen: str) -> None:
    original = bc.load(TESTS / "passes" / "schedule.ir")
    program = bc.compile(original, f"freeze{{match={frozen}}},schedule{{total=4,lr=0.5}}")
    assert "schedule.rates.1" not in program.state
    found = bc.prove(original, program)
    assert found.proved, found


def test_a_schedule_without_a_list_or_a_count_is_not_proved() -> None:
    original = load("mlp")
    program = bc.compile(original, "gradient-accumulation{steps=2}")
    program.reports += bc.compile(original, COSINE).reports
    found = bc.prove(original, program)
    assert "no list of learning rates" in found.proof.failures[0].detail
    assert not found.proved


def test_no_fault_in_a_schedule_is_proved() -> None:
    pipelines = ("schedule{total=3,warmup=1}", "schedule{kind=linear,total=3},gradient-accumulation{steps=2}")
    total, kinds, through = attacks(range(400), 15, ("mlp", "mlp_adam_decay"), pipelines)
    assert through == []
    assert total == 15
    assert len(kinds) >= 4
