"""boost-verify knows what a schedule of the learning rate promises, and the commands show the rate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.ir.core.errors import OptionError
from boost_compile.passes import schedule
from boost_compile.passes.schedule import RateSchedule
from boost_compile.tools.training.loading import settings_of

import boost_compile as bc
from tests.boundary import slow

MATERIAL = Path(__file__).parents[1] / "material"
PIPELINES = [
    "overflow-check,parameter-groups{match=[*.bias],lr_factor=0.5},schedule{total=6,warmup=1,lr=0.2}",
    *slow("schedule{kind=one-cycle,total=9}", "gradient-accumulation{steps=2},schedule{kind=linear,total=3,end=0.1}"),
    *slow("schedule{kind=table,table=[0.3,0.1]}", "schedule{kind=constant,warmup=5,start=0.5}"),
]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_schedule_is_verified(pipeline: str) -> None:
    source = bc.load(MATERIAL / "mlp.ir")
    found = bc.verify(source, bc.compile(source, pipeline), cycles=3)
    assert found.verified, [r for r in found.results if r.failed]
    passed = {r.name for r in found.results if r.status == "passed"}
    assert "different micro-batches" in passed


@pytest.mark.parametrize("name", ["mlp_momentum_rate_list", "mlp_momentum_rate_schedule"])
def test_a_file_whose_rates_change_by_themselves(exported: Callable[[str], Path], name: str) -> None:
    """By a list, or by a formula."""
    source = bc.load(exported(name))
    found = bc.verify(source, bc.compile(source, "schedule{total=6,lr=0.2}"), quick=True)
    assert found.verified, found
    assert found.result("different micro-batches").status == "passed"


def test_one_that_runs_late_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    table = RateSchedule._table
    monkeypatch.setattr(RateSchedule, "_table", lambda self, peak: [peak, *table(self, peak)])
    source = bc.load(MATERIAL / "mlp.ir")
    found = bc.verify(source, bc.compile(source, "clip-gradients,schedule{kind=linear,total=4}"), quick=True)
    assert found.guilty is not None
    assert found.guilty.name == schedule.RateSchedule.name
    assert not bc.prove(source, bc.compile(source, "schedule{kind=linear,total=4}")).proved


def test_a_rate_that_is_scheduled_cannot_be_set() -> None:
    source = bc.load(MATERIAL / "mlp.ir")
    assert settings_of(["learning_rate=0.5"], source) == {"learning_rate": 0.5}
    with pytest.raises(OptionError, match="the schedule of the program sets 'learning_rate' in each update"):
        settings_of(["learning_rate=0.5"], bc.compile(source, "schedule{total=4}"))
