"""Going on where a state was saved: only with the same order of the data and the same random numbers."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from boost_compile.ir.core.errors import RuntimeFailure
from boost_compile.runtime.data.data_position import DataPosition
from boost_compile.runtime.engine.draws import Draws
from boost_compile.runtime.training.resuming import check_draws, resumed_position

ORDER = {"samples": 8, "batch": 2, "seed": 1, "end_of_epoch": "carry"}


def drawing(loaded: tuple[int, dict[str, int]] | None) -> Draws:
    draws = Draws(3, 0)
    draws.add("g", [SimpleNamespace()])  # type: ignore[list-item]
    draws.resume(loaded)
    return draws


def test_the_same_seed_goes_on_behind_the_last_run() -> None:
    draws = drawing((3, {"g": 5}))
    check_draws(draws, [])
    assert draws.runs == {"g": 5}
    draws.resume(None)
    assert draws.loaded_seed is None


def test_another_seed_is_refused_where_numbers_are_drawn() -> None:
    with pytest.raises(RuntimeFailure, match="from the seed 4 then and from 3 now"):
        check_draws(drawing((4, {"g": 5})), [])
    nothing = Draws(3, 0)
    nothing.resume((4, {}))
    check_draws(nothing, [])


@pytest.mark.parametrize(
    ("lost", "draws", "said"),
    [
        (["a in x"], Draws(3, 0), "of a in x stood (Session(seed=…) draws masks itself)"),
        (["a in x", "b in y", "c in z"], drawing(None), "of a in x and 2 more stood"),
    ],
)
def test_generators_of_mindspore_are_named(
    lost: list[str], draws: Draws, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "boost_compile"):
        check_draws(draws, lost)
    assert [record.getMessage().endswith(said) for record in caplog.records] == [True]


def test_a_position_fits_its_order_and_asks_for_the_draws() -> None:
    asked: list[bool] = []
    session: Any = SimpleNamespace(data_position=DataPosition(1, 2, 3, ORDER), check_draws=lambda: asked.append(True))
    assert resumed_position(session, ORDER) is session.data_position
    assert asked == [True]
    with pytest.raises(RuntimeFailure, match="the number of samples was 8 then and 9 now"):
        resumed_position(session, {**ORDER, "samples": 9})
    session.data_position = None
    with pytest.raises(RuntimeFailure, match="nothing says where in the data"):
        resumed_position(session, ORDER)
    assert asked == [True]
