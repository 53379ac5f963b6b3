"""A training cell that returns no loss (`return self.optimizer(gradients)`): what each door makes of it."""

from __future__ import annotations

import logging
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from boost_compile.tools import inspect, run

import boost_compile as bc
from tests.networks import state_of
from tests.tools.support import shell

from .zoo import SHAPES, Batch, Export

SHAPE = SHAPES["no_loss"]


def rows(batches: list[Batch]) -> tuple[np.ndarray, ...]:
    return tuple(np.concatenate(columns) for columns in zip(*batches, strict=True))


def test_a_session_reports_no_loss(cell_file: Export) -> None:
    program = bc.load(cell_file("no_loss"))
    assert "loss" not in program.graphs["step"].outputs
    first, second = SHAPE.batches(2)
    session = bc.Session(program)
    result = session.step(*first)
    assert result.loss is None
    assert result.updated
    assert all(session.cell(*map(ms.Tensor, second)))


def test_fit_trains_and_says_that_there_is_no_loss(cell_file: Export, caplog: pytest.LogCaptureFixture) -> None:
    batches = SHAPE.batches(4)
    cell = SHAPE.build()
    for batch in batches:
        cell(*map(ms.Tensor, batch))
    expected = state_of(cell)
    session = bc.Session(bc.load(cell_file("no_loss")))
    with caplog.at_level(logging.WARNING, "boost_compile"):
        history = session.fit(rows(batches), epochs=1, shuffle=False)
    assert sum("returns no loss" in r.message for r in caplog.records) == 1
    assert not history.returns_loss
    assert [c.updated for c in history.cycles] == [True] * 4
    assert np.isnan(history.losses).all()
    assert "no loss" in repr(history)
    state = session.state()
    for name in ("hidden.weight", "output.weight"):
        np.testing.assert_array_equal(state[name], expected[name])


def test_accumulated_it_returns_nothing_until_the_update(cell_file: Export) -> None:
    program = bc.compile(bc.load(cell_file("no_loss")), "gradient-accumulation{steps=2}")
    first, second = SHAPE.batches(2)
    session = bc.Session(program)
    assert session.step(*first).outputs == {}
    assert set(session.step(*second).outputs) == {"output0", "output1", "output2", "output3"}
    assert session.cell(*map(ms.Tensor, first)) is None
    checked = bc.Session(bc.compile(bc.load(cell_file("no_loss")), "gradient-accumulation{steps=2},overflow-check"))
    loss, overflow, scale = checked.cell(*map(ms.Tensor, first))
    assert (loss, bool(overflow), float(scale)) == (None, False, 1.0)


def test_the_commands_say_so(
    cell_file: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = bc.compile(bc.load(cell_file("no_loss")), "gradient-accumulation{steps=2}")
    program.save("train.boost")
    x, labels = rows(SHAPE.batches(4))
    np.savez("data.npz", x, labels)
    done = shell(capsys, run.command, "train.boost", "--data", "data.npz")
    assert done.code == 0
    assert "the program returns no loss" in done.out
    assert "nan" not in done.out.lower()
    document = shell(capsys, run.command, "train.boost", "--data", "data.npz", "--json").document
    assert (document["cycles"], document["losses"], document["epochs"][0]["loss"]) == (2, [], None)
    seen = shell(capsys, inspect.command, cell_file("no_loss"), "--format", "anatomy")
    assert "graph @step\n  no loss\n" in seen.out


def test_its_network_is_not_told_by_a_loss(cell_file: Export) -> None:
    with pytest.raises(bc.Error, match=r"returns no loss[\s\S]*result='NODE'"):
        bc.Session(bc.load(cell_file("no_loss"))).predict(SHAPE.batches(1)[0][0])
