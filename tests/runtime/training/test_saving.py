"""Which states are kept while `fit` trains, and how it leaves when it is asked to."""

from __future__ import annotations

import logging
import math
import os
import signal
from pathlib import Path

import pytest
from boost_compile.ir.core.errors import RuntimeFailure
from boost_compile.runtime.state.checkpoint import DamagedState
from boost_compile.runtime.training import stop
from boost_compile.runtime.training.retention import load_newest, previous_states
from boost_compile.runtime.training.saving import SaveEvery

import boost_compile as bc
from tests.boundary import every_other
from tests.runtime.programs import running_mean
from tests.runtime.training.support import Signalled, assert_same_state, rows


def kept(folder: Path) -> set[str]:
    return set(os.listdir(folder))


@pytest.mark.parametrize("suffix", [".safetensors", ".ckpt"])
def test_the_last_states_stay_and_the_name_is_the_newest(suffix: str, tmp_path: Path):
    session = bc.Session(running_mean(2))
    path = tmp_path / f"x{suffix}"
    (tmp_path / f"x.cycle-90{suffix}").write_bytes(b"of a training before")
    os.utime(tmp_path / f"x.cycle-90{suffix}", (1, 1))
    session.fit((rows(12),), callbacks=[SaveEvery(path, 2, keep=2)])
    assert kept(tmp_path) == {path.name, f"x.cycle-4{suffix}", f"x.cycle-6{suffix}"}
    assert [p.name for p in previous_states(path)] == [f"x.cycle-6{suffix}", f"x.cycle-4{suffix}"]
    assert path.samefile(tmp_path / f"x.cycle-6{suffix}")


def test_of_states_of_one_moment_the_later_cycle_is_the_newer(tmp_path: Path):
    for cycle in (9, 10, 100):
        (tmp_path / f"x.cycle-{cycle}.ckpt").touch()
        os.utime(tmp_path / f"x.cycle-{cycle}.ckpt", (1, 1))
    names = [path.name for path in previous_states(tmp_path / "x.ckpt")]
    assert names == ["x.cycle-100.ckpt", "x.cycle-10.ckpt", "x.cycle-9.ckpt"]


def test_without_links_the_newest_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refused)
    bc.Session(running_mean(2)).fit((rows(4),), callbacks=[SaveEvery(tmp_path / "x.safetensors", 1, keep=3)])
    assert kept(tmp_path) == {"x.safetensors", "x.cycle-1.safetensors", "x.cycle-2.safetensors"}
    assert (tmp_path / "x.safetensors").read_bytes() == (tmp_path / "x.cycle-2.safetensors").read_bytes()


def test_the_clock_saves_too(tmp_path: Path):
    numbers = []

    class Watch(SaveEvery):
        def on_cycle(self, session, cycle):
            super().on_cycle(session, cycle)
            numbers.append((tmp_path / "x.ckpt").exists())

    bc.Session(running_mean(2)).fit((rows(4),), callbacks=[Watch(tmp_path / "x.ckpt", minutes=1e-9)])
    assert numbers == [True, True]
    numbers.clear()
    (tmp_path / "x.ckpt").unlink()
    bc.Session(running_mean(2)).fit((rows(4),), callbacks=[Watch(tmp_path / "x.ckpt", minutes=60)])
    assert numbers == [False, False]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"does not say when .*x\.ckpt is to be written. Give cycles=K, minutes=T or both"),
        ({"cycles": 0}, "cycles 0: give a whole number of at least 1"),
        ({"cycles": 2.5}, "cycles 2.5: give a whole number"),
        ({"cycles": "5"}, "cycles '5': give a whole number"),
        ({"cycles": True}, "cycles True: give a whole number"),
        ({"minutes": -1}, "minutes -1: give a number above 0"),
        ({"minutes": "5"}, "minutes '5': give a number above 0"),
        ({"cycles": 1, "keep": 0}, "keep 0: give a whole number"),
    ],
)
def test_it_must_say_when_it_saves(given: dict[str, object], message: str, tmp_path: Path):
    with pytest.raises(RuntimeFailure, match=message):
        SaveEvery(tmp_path / "x.ckpt", **given)


@pytest.mark.parametrize(("path", "message"), [("x.foo", r"x\.foo: checkpoints are"), (5, "not to a int")])
def test_it_must_say_where_it_saves(path: object, message: str):
    with pytest.raises(RuntimeFailure, match=message):
        SaveEvery(path, 1)


@pytest.mark.parametrize(("number", "step"), every_other(tuple(stop.SIGNALS), (1, 2, 3, 4)))
def test_asked_to_stop_it_saves_at_that_micro_batch(number: int, step: int, tmp_path: Path):
    path, data = tmp_path / "x.safetensors", (rows(3),)
    whole, first, second = (bc.Session(running_mean(2)) for _ in range(3))
    before = signal.getsignal(number)
    whole.fit(data, epochs=2)
    with pytest.raises(stop.Stopped, match=r"asked to stop, and .*x\.safetensors holds its state"):
        first.fit(data, epochs=2, callbacks=[Signalled(step, number), SaveEvery(path, minutes=math.inf)])
    assert signal.getsignal(number) is before
    assert first.data_position is not None
    assert first.data_position.epoch * 3 + first.data_position.micro_batch == step
    second.load_state(path)
    second.fit(data, epochs=2, resume=True)
    assert_same_state(second.state(), whole.state())


def test_a_second_signal_is_obeyed_at_once(tmp_path: Path):
    session = bc.Session(running_mean(4))
    saving = SaveEvery(tmp_path / "x.ckpt", 1)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        session.fit((rows(8),), callbacks=[Signalled(1, signal.SIGINT, signal.SIGINT), saving])
    assert kept(tmp_path) == set()


def test_a_damaged_state_gives_way_to_the_one_before(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "x.safetensors"
    session, again = bc.Session(running_mean(1)), bc.Session(running_mean(1))
    session.fit((rows(3),), callbacks=[SaveEvery(path, 1, keep=3)])
    assert load_newest(again, path) == path
    path.write_bytes(path.read_bytes()[:-9])  # of the newest, and of its second name
    with caplog.at_level(logging.WARNING, "boost_compile"):
        assert load_newest(again, path).name == "x.cycle-2.safetensors"
    assert "x.safetensors: cannot be read" in caplog.text
    assert "Using the state before it" in caplog.text
    path.unlink()
    assert load_newest(again, path).name == "x.cycle-2.safetensors"
    for each in previous_states(path):
        each.write_bytes(b"")
    with pytest.raises(DamagedState, match=r"x\.safetensors"):
        load_newest(again, path)
