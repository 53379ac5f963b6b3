"""Ctrl-C while `fit` trains: it ends where the session can train on, in the same process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from boost_compile.runtime.training import stop
from boost_compile.runtime.training.callback import Callback

import boost_compile as bc
from tests.boundary import every_other
from tests.runtime.programs import running_mean
from tests.runtime.training.support import Signalled, assert_same_state, rows
from tests.waiting import PATIENCE, wait_until

ROOT = Path(__file__).parents[3]

BEGIN = """
import ctypes
import signal
import boost_compile as bc
from tests.runtime.programs import running_mean
from tests.runtime.training.support import Signalled, assert_same_state, rows

class Tells(bc.Callback):
    def on_step(self, session, number, result):
        if number == 3:
            print("trains", flush=True)

class Hangs(bc.Callback):
    def on_step(self, session, number, result):
        libc, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64)
        libc.pthread_mutex_lock(lock)
        print("trains", flush=True)
        libc.pthread_mutex_lock(lock)  # never comes back, as a kernel of MindSpore that waits in vain

session, data = bc.Session(running_mean(2)), (rows(3),)
session.step(data[0][:2])  # from here on MindSpore listens to SIGINT
session = bc.Session(running_mean(2))
"""
TRAINS_ON = """
try:
    session.fit(data, epochs=10**9, callbacks=[Tells()])
except KeyboardInterrupt as error:
    print("caught:", error)
epochs = session.data_position.epoch + 2
session.fit(data, epochs=epochs, resume=True)
whole = bc.Session(running_mean(2))
whole.fit(data, epochs=epochs)
assert_same_state(session.state(), whole.state())
print("the same")
"""
HANGS = "session.fit(data, callbacks=[Hangs()])"


@contextmanager
def training(code: str) -> Iterator[subprocess.Popen[str]]:
    """A process of its own that runs this code, when it says that it trains."""
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN + code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "trains\n", process.communicate()
        yield process
    finally:
        process.kill()


@pytest.mark.parametrize(("number", "step"), every_other(tuple(stop.SIGNALS), (1, 2, 3, 4, 6)))
def test_an_interrupted_fit_trains_on_in_the_same_process(number: int, step: int, tmp_path: Path):
    data = (rows(3),)
    whole, session, loaded = (bc.Session(running_mean(2)) for _ in range(3))
    before = [signal.getsignal(each) for each in stop.SIGNALS]
    whole.fit(data, epochs=2)
    place = f"after micro-batch {(step - 1) % 3 + 1} of epoch {(step + 2) // 3}; "
    with pytest.raises(KeyboardInterrupt, match=place):
        session.fit(data, epochs=2, callbacks=[Signalled(step, number)])
    assert [signal.getsignal(each) for each in stop.SIGNALS] == before
    session.save(tmp_path / "x.safetensors")
    loaded.load_state(tmp_path / "x.safetensors")
    for each in (session, loaded):
        each.fit(data, epochs=2, resume=True)
        assert_same_state(each.state(), whole.state())


def test_it_ends_behind_an_epoch_that_was_interrupted_at_its_end():
    session, epochs = bc.Session(running_mean(2)), []

    class AtTheEnd(Callback):
        def on_epoch(self, session, epoch):
            epochs.append(epoch.number)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="after epoch 1; "):
        session.fit((rows(4),), epochs=3, callbacks=[AtTheEnd()])
    assert epochs == [1]


@pytest.mark.parametrize("signals", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM)])
def test_a_second_signal_ends_it_where_it_stands(signals: tuple[int, ...]):
    session = bc.Session(running_mean(4))
    with pytest.raises(KeyboardInterrupt) as found:
        session.fit((rows(8),), callbacks=[Signalled(1, *signals)])
    assert [entry.name for entry in found.traceback][-2] == "on_step"


def test_whoever_listens_to_sigterm_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        history = bc.Session(running_mean(2)).fit((rows(4),), callbacks=[Signalled(1, signal.SIGTERM)])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (len(history.cycles), heard) == (2, [signal.SIGTERM])


def handlers_during_a_fit(session: bc.Session) -> list[object]:
    found: list[object] = []

    class Look(Callback):
        def on_step(self, session, number, result):
            found.extend(signal.getsignal(each) for each in stop.SIGNALS)

    session.fit((rows(1),), callbacks=[Look()], shard=False)
    return found


def test_other_threads_and_jobs_of_ranks_train_as_without_it(monkeypatch: pytest.MonkeyPatch):
    before = [signal.getsignal(each) for each in stop.SIGNALS]
    assert handlers_during_a_fit(bc.Session(running_mean(1))) != before
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.extend(handlers_during_a_fit(bc.Session(running_mean(1)))))
    thread.start()
    thread.join()
    assert found == before
    session = bc.Session(running_mean(1))
    two = replace(session.ranks, size=2)
    monkeypatch.setattr(bc.Session, "ranks", two)
    assert handlers_during_a_fit(session) == before


def test_ctrl_c_in_a_script_is_caught_and_the_session_trains_on():
    with training(TRAINS_ON) as process:
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    first, second = out.splitlines()
    assert first.startswith("caught: fit was interrupted after ")
    assert second == "the same"


def test_ctrl_c_again_ends_a_process_that_hangs():
    def ended() -> bool:
        process.send_signal(signal.SIGINT)
        return process.poll() is not None

    with training(HANGS) as process:
        wait_until(ended, "ctrl-C ends what hangs", pause=0.2)
    assert process.returncode in (-signal.SIGINT, -signal.SIGTERM)
