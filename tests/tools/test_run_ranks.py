"""boost-run --ranks: real jobs, what is left of them when they end badly, and what they train."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from boost_compile.runtime.data.data_position import NOTE, DataPosition
from boost_compile.tools.cli import Ended
from boost_compile.tools.jobs import watch
from boost_compile.tools.jobs.failure import Lost, explain
from boost_compile.tools.jobs.folder import JobFolder
from boost_compile.tools.jobs.running import Member, RunningJob
from boost_compile.tools.run import command
from safetensors import safe_open
from safetensors.numpy import load_file

import boost_compile as bc
from tests.ranks import environ
from tests.waiting import PATIENCE, wait_until

from . import holding
from .support import assert_one_error, shell

SAMPLES, SIZE, PASSES = 52, 4, "gradient-accumulation{steps=2},data-parallel"
"""Six micro-batches of four on each of two ranks, three cycles an epoch, and four samples over."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, exported: Callable[[str], Path]) -> Path:
    """A folder with a data-parallel program and its data."""
    folder = tmp_path_factory.mktemp("job")
    bc.load(exported("mlp")).save(folder / "apart.boost")
    bc.compile(bc.load(exported("mlp")), PASSES).save(folder / "mlp.boost")
    images, labels = digits()
    np.savez(folder / "data.npz", images, labels)
    images[SIZE, 0] = np.inf  # without shuffling it is the second rank that takes this row, in the first step
    np.savez(folder / "bad.npz", images, labels)
    shutil.copy(holding.__file__, folder / "evaluation.py")
    return folder


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Four classes that a line separates."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, SAMPLES).astype(np.int32)
    images = np.eye(4, 8, dtype=np.float32)[labels] * 3 + rng.standard_normal((SAMPLES, 8)).astype(np.float32) * 0.1
    return images, labels


@dataclass
class Job:
    """A boost-run with its own folder for temporary files."""

    process: subprocess.Popen[str]
    temporary: Path

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=PATIENCE)
        assert members(self.temporary) == [], "no process outlives the job"
        assert list(self.temporary.iterdir()) == [], "nothing is left in the folder for temporary files"
        return self.process.returncode, out, err

    def rank(self, number: int) -> psutil.Process:
        (found,) = [p for p in members(self.temporary) if roles(p) == ("MS_WORKER", str(number))]
        return found


def members(temporary: Path) -> list[psutil.Process]:
    """The ranks and the scheduler of the job with that folder, whoever their parent is."""
    return [p for p in psutil.process_iter() if roles(p) is not None and str(temporary) in environ(p).get("TMPDIR", "")]


def connections(job: Job) -> list[Any]:
    """The sockets of all members that are bound or connected to an address; none before there are three members."""
    found = members(job.temporary)
    with contextlib.suppress(psutil.Error):
        return [c for process in found for c in process.net_connections("inet")] if len(found) == 3 else []
    return []


def roles(process: psutil.Process) -> tuple[str, str] | None:
    given = environ(process)
    return (given["MS_ROLE"], given.get("RANK_ID", "")) if "MS_ROLE" in given else None


@pytest.fixture
def start(here: Path, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    started: list[Job] = []

    def start(*arguments: object) -> Job:
        temporary = tmp_path / "temporary"
        temporary.mkdir(exist_ok=True)
        line = [sys.executable, "-m", "boost_compile.tools.run", *map(str, arguments)]
        environment = {**os.environ, "TMPDIR": str(temporary)}
        process = subprocess.Popen(
            line, cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(Job(process, temporary))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        for process in members(each.temporary):
            process.kill()


@pytest.fixture(scope="module")
def whole(here: Path) -> dict[str, np.ndarray]:
    """The state after an uninterrupted job of two ranks."""
    saved = here / "whole.safetensors"
    line = ["mlp.boost", "--data", "data.npz", "--epochs", "60", "--ranks", "2", "--check-replicas", "50"]
    done = subprocess.run(
        [sys.executable, "-m", "boost_compile.tools.run", *line, "--save", saved.name],
        cwd=here, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^epoch (\d+)/60  loss", done.stderr, re.M) == [str(n) for n in range(1, 61)]
    assert "180 optimizer steps on 2 ranks; 240 samples left out" in done.stdout
    return load_file(saved)


def test_two_ranks_train_as_one_process_with_twice_the_batch(
    whole: dict[str, np.ndarray], exported: Callable[[str], Path]
) -> None:
    # Two micro-batches of one process are one of each of two ranks.
    one = bc.Session(bc.compile(bc.load(exported("mlp")), "gradient-accumulation{steps=4}"), seed=0)
    images, labels = digits()
    for epoch in range(60):
        order = np.random.default_rng((0, epoch)).permutation(SAMPLES)[: SAMPLES // 8 * 8]
        for first in range(0, len(order), SIZE):
            rows = order[first : first + SIZE]
            one.step(images[rows], labels[rows])
    alone = one.state()
    assert set(alone) <= set(whole)
    for name, array in alone.items():
        if not name.startswith("accum"):
            np.testing.assert_allclose(whole[name], array, rtol=2e-5, atol=2e-6, err_msg=name)


def test_interrupted_and_then_killed_it_goes_on_from_the_last_state(
    whole: dict[str, np.ndarray], here: Path, start: Callable[..., Job]
) -> None:
    """One training by three jobs: all ranks are asked to stop, then one is killed, and the job starts itself again."""
    line = ("mlp.boost", "--data", "data.npz", "--epochs", 60, "--ranks", 2, "--eval", "evaluation.py:show")
    interrupted = here / "interrupted.ckpt"
    (here / holding.HELD).write_text("interrupted.cycle-*.ckpt 2")
    job = start(*line, "--save", interrupted.name, "--save-every", 1)
    wait_until(lambda: len(list(here.glob("interrupted.cycle-*.ckpt"))) == 2, "two states are there", job.process)
    job.process.send_signal(signal.SIGINT)
    code, out, err = job.end()
    assert code == 75
    assert "boost-run: error: training was asked to stop, and interrupted.ckpt holds its state: boost-run mlp" in err
    assert err.endswith("--eval evaluation.py:show --save interrupted.ckpt --save-every 1 --resume interrupted.ckpt\n")
    assert [p.name for p in here.iterdir() if p.name.startswith(".")] == []
    assert len(list(here.glob("interrupted.cycle-*.ckpt"))) == 2

    saved = here / "killed.safetensors"
    again = ("--save", saved.name, "--save-every", 2, "--resume", interrupted.name, "--restarts", 1)
    (here / holding.HELD).write_text(f"{saved.name} 1")
    job = start(*line, *again, "--log-dir", "logs")
    wait_until(saved.exists, "a state is saved", job.process)
    with safe_open(saved, framework="numpy") as file:
        position = DataPosition.from_text(file.metadata()[NOTE], "")
    assert position.cycle % 2 == 0
    assert position.cycle < 180, "it is killed before its end"
    job.rank(1).kill()
    (here / holding.HELD).unlink()
    code, after, err = job.end()
    assert code == 0, err
    assert "boost-run: rank 1 of 2 was ended by SIGKILL after" in err
    assert "\n  restart 1 of 1 in 1 s from killed.safetensors: 2 ranks\n" in err
    assert " optimizer steps on 2 ranks since restart 1; " in after
    assert (here / "logs" / "restart_1" / "worker_1.log").exists()
    assert [p.name for p in here.iterdir() if p.name.startswith(".")] == []
    # Of an epoch whose last cycle was saved, the evaluation is still to come.
    assert (out + after).count("evaluated on rank 0\n") >= 60
    assert "evaluated on rank 1" not in out + after
    resumed = load_file(saved)
    assert set(resumed) == set(whole)
    for name, array in resumed.items():
        np.testing.assert_array_equal(array, whole[name], err_msg=name)


def test_a_killed_rank_is_named_with_what_to_do(tmp_path: Path) -> None:
    saved = tmp_path / "saved.ckpt"
    running = RunningJob(watch.Job(2, (), save=str(saved)), JobFolder(tmp_path), tmp_path)
    running.members[7] = Member(7, 1, status=-signal.SIGKILL)
    with pytest.raises(Lost, match="rank 1 of 2 was ended by SIGKILL before the first optimizer step") as caught:
        explain(running)
    assert caught.value.code == 128 + signal.SIGKILL
    assert "--resume" not in str(caught.value)
    saved.touch()
    os.utime(saved, (running.started + 1, running.started + 1))
    with pytest.raises(Lost, match=f"{saved} holds the last state that was saved: --resume {saved} goes on"):
        explain(running)
    running.stopped = True
    with pytest.raises(Ended) as caught:
        explain(running)
    assert not isinstance(caught.value, Lost), "who asked for the end does not want another start"


def test_a_failing_rank_is_named_with_its_reason(start: Callable[..., Job]) -> None:
    code, out, err = start("mlp.boost", "--data", "bad.npz", "--no-shuffle", "--ranks", 2).end()
    assert (code, out) == (2, "")
    warning, error = err.splitlines()
    assert warning.startswith("bad.npz: array 'arr_0': row 4 holds an infinity")
    assert error.startswith("boost-run: error: rank 1 of 2: the loss of step 1 is nan, and")


@pytest.mark.slow
def test_another_port_is_taken_where_one_is_lost_to_somebody_else(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(here)
    monkeypatch.setattr(watch, "is_free", lambda *_: True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = iter([taken.getsockname()[1], watch.free_port()])
        monkeypatch.setattr(watch, "free_port", lambda _: next(ports))
        done = shell(capsys, command, "mlp.boost", "--data", "data.npz", "--ranks", 2, "--json")
    assert next(ports, None) is None, "both ports were tried"
    assert (done.code, done.document["cycles"]) == (0, 3)


def test_ranks_end_with_the_process_that_watches_them(start: Callable[..., Job]) -> None:
    job = start("mlp.boost", "--data", "data.npz", "--epochs", 100000, "--ranks", 2)
    found: list[Any] = []

    def connected() -> bool:
        found[:] = connections(job)
        return len(found) >= 3

    wait_until(connected, "ranks and scheduler are connected", job.process, pause=0.05)
    # Nothing of a job can be reached from another machine.
    assert {end.ip for each in found for end in (each.laddr, each.raddr) if end} == {"127.0.0.1"}
    job.process.kill()
    wait_until(lambda: not members(job.temporary), "all of the job end", pause=0.05)


def test_one_rank_is_no_job(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(here)
    monkeypatch.setattr(watch, "run_job", None)
    done = shell(capsys, command, "mlp.boost", "--data", "data.npz", "--ranks", 1, "--json")
    assert (done.code, done.document["ranks"], done.document["epochs"][0]["samples"]) == (0, 1, SAMPLES)


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (("--ranks", "14"), ("52 samples do not fill one micro-batch of 4 on each of 14 ranks: that takes 56",)),
        (("--ranks", "2", "--data", "missing.npz"), ("missing.npz: no such file",)),
        (("--ranks", "2", "--eval", "missing.py:f"), ("missing.py: no such file",)),
        (("--ranks", "2", "--save-every", "3"), ("--save-every needs --save",)),
        (("--ranks", "2", "--load", "data.npz", "--resume", "data.npz"), ("exclude each other",)),
        (("--ranks", "0"), ("--ranks",)),
        (("--restarts", "1"), ("--restarts is for jobs of several ranks",)),
        (("--ranks", "2", "--restarts", "1", "--save", "saved.ckpt"), ("--restarts needs --save with --save-every",)),
    ],
)
def test_what_can_be_told_is_told_before_anything_starts(
    arguments: tuple[str, ...], fragments: tuple[str, ...], here: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(here)
    monkeypatch.setattr(watch, "start", None)
    assert_one_error(shell(capsys, command, "mlp.boost", "--data", "data.npz", *arguments), "boost-run", *fragments)


def test_a_program_in_which_ranks_do_nothing_together(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(here)
    done = shell(capsys, command, "apart.boost", "--data", "data.npz", "--ranks", 2)
    assert_one_error(done, "boost-run", "2 of them would train 2 different networks", "data-parallel")


def test_a_port_that_was_asked_for_and_is_taken(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(here)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = shell(capsys, command, "mlp.boost", "--data", "data.npz", "--ranks", 2, "--master-port", port)
    assert_one_error(done, "boost-run", f"port {port} is in use on this machine; give another with --master-port")
