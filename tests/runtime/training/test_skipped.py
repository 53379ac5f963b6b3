"""A training whose updates are all skipped ends with an error that says what is known of it."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.errors import RuntimeFailure
from boost_compile.ir.core.line_search import Search
from boost_compile.ir.core.program import Entry, Schedule
from boost_compile.runtime.training.result import StepResult
from boost_compile.runtime.training.skipped import check_skipped

ENTRIES = (Entry("step"),)


def ended(**outputs: object) -> StepResult:
    return StepResult("step", outputs, ended_cycle=True)


@pytest.mark.parametrize(
    ("limit", "outputs"), [(None, {"skipped_cycles": 99}), (2, {}), (2, {"skipped_cycles": 2}), (0, {"loss": 1.0})]
)
def test_training_goes_on(limit: int | None, outputs: dict[str, object]) -> None:
    check_skipped(Schedule(ENTRIES, max_skipped=limit), ended(**outputs))


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ({}, r"were not finite: training"),
        ({"loss": 2.5}, r"\(the last loss was 2.5\)"),
        ({"loss": 2.5, "loss_scale": 4.0}, r"\(the last loss was 2.5, at a loss scale of 4\)"),
        ({"loss_scale_0": 8.0, "loss_scale_1": 2.0, "loss_scale": 4.0}, r"\(at a loss scale of 8, 2\)"),
    ],
)
def test_too_many_in_a_row(outputs: dict[str, object], said: str) -> None:
    for schedule, by in (
        (Schedule(ENTRIES, max_skipped=2), "overflow-check"),
        (Schedule(ENTRIES, max_skipped=2, search=Search("trial", "judge", "pending", 3)), "dim-reduce"),
    ):
        with pytest.raises(RuntimeFailure, match=said) as caught:
            check_skipped(schedule, ended(skipped_cycles=3, **outputs))
        assert "the last 3 windows were all skipped" in str(caught.value)
        assert f"max_skipped of {by} allows more" in str(caught.value)
