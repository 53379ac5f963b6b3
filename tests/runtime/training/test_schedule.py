"""Cycles of several graphs, on a program whose state is plain to compute: `mean` becomes the mean of each cycle."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from boost_compile.ir.core.program import Entry, Schedule

import boost_compile as bc
from tests.runtime.programs import running_mean, samples


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("steps", "split"), [(1, "apply"), (2, "apply"), (3, "apply"), (2, "fused"), (3, "fused")])
def test_a_cycle_runs_its_graphs_in_turn(steps, split):
    session = bc.Session(running_mean(steps, split))
    data = samples(2 * steps)
    results = [session.step(x) for x in data]
    assert [r.updated for r in results] == ([False] * (steps - 1) + [True]) * 2
    last = "step" if split == "fused" else "accumulate"
    assert [r.graph for r in results] == (["accumulate"] * (steps - 1) + [last]) * 2
    close(session.state()["mean"], data[steps:].mean(0))
    assert session.state()["updates"] == 2
    close(np.array([r.loss for r in results[:steps]]), (data[:steps] ** 2).sum(1) / 2)
    close(np.array([r.loss for r in results[steps:]]), ((data[steps:] - data[:steps].mean(0)) ** 2).sum(1) / 2)


@pytest.mark.parametrize("split", ["apply", "fused"])
def test_flush_ends_a_short_cycle_by_its_real_count(split):
    session = bc.Session(running_mean(4, split))
    data = samples(6)
    for x in data:
        session.step(x)
    assert session.position == 2
    result = session.flush()
    assert result is not None
    assert (result.updated, result.graph, result.loss) == (True, "apply", None)
    close(session.state()["mean"], data[4:].mean(0))
    assert session.position == 0
    assert session.flush() is None
    assert session.state()["updates"] == 2


def test_loading_an_older_state_moves_the_position_back():
    session = bc.Session(running_mean(3))
    start = session.state()
    data = samples(3)
    session.step(data[0])
    session.load_state(start)
    assert session.position == 0
    assert [session.step(x).updated for x in data] == [False, False, True]
    close(session.state()["mean"], data.mean(0))


def test_a_state_of_another_cycle_is_refused():
    long, short = bc.Session(running_mean(5)), bc.Session(running_mean(2))
    for x in samples(3):
        long.step(x)
    before = short.state()
    with pytest.raises(bc.Error, match="'count' says that 3 micro-batches are pending, but a window has 2"):
        short.load_state(long.state())
    np.testing.assert_array_equal(short.state()["sum"], before["sum"])


def test_outputs_of_the_update_graph_join_the_step():
    session = bc.Session(running_mean(2, scale=True))
    results = [session.step(x) for x in samples(8)]
    assert [r.loss_scale for r in results] == [None, 2.0, None, 4.0, None, 8.0, None, 16.0]
    assert [r.overflow for r in results] == [None, False, None, False, None, False, None, True]
    # The program reports that it skipped the last update.
    assert [r.updated for r in results] == [False, True, False, True, False, True, False, False]
    assert results[-1].ended_cycle
    assert results[1].outputs == {"loss": results[1].loss, "overflow": False, "loss_scale": 2.0}


def test_a_graph_without_inputs_that_opens_the_cycle_runs_before_its_first_graph():
    program = running_mean(1)
    program.schedule = Schedule((Entry("apply"), Entry("accumulate")), count=None)
    session = bc.Session(program)
    session.load_state({"sum": np.array([4, 8], np.float32), "count": np.float32(2)}, strict=False)
    data = samples(1)[0]
    result = session.step(data)
    assert result.loss == pytest.approx(((data - [2, 4]) ** 2).sum() / 2)
    close(session.state()["sum"], data - [2, 4])


def test_pending_micro_batches_without_a_flush_graph_are_an_error():
    program = running_mean(3)
    program.schedule = dataclasses.replace(program.schedule, flush=None)
    session = bc.Session(program)
    session.step(samples(1)[0])
    with pytest.raises(bc.Error, match=r"1 of 3 micro-batches is pending.*Feed 2 more"):
        session.flush()


def test_a_program_that_takes_no_data_is_an_error():
    program = running_mean(1)
    program.schedule = Schedule((Entry("apply"),))
    with pytest.raises(bc.Error, match="no graph of program 'running_mean' takes an input"):
        bc.Session(program)
