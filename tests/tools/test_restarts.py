"""boost-run --restarts: from what state, in what shape, how often. The jobs themselves are stand-ins."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boost_compile.tools.cli import Ended
from boost_compile.tools.jobs import watch
from boost_compile.tools.jobs.failure import Lost
from boost_compile.tools.jobs.running import Job
from boost_compile.tools.run import command

import boost_compile as bc

from .support import Shell, assert_one_error, shell

EPOCH = {"number": 1, "loss": 0.5, "samples": 8, "seconds": 1.0, "evaluation": None, "dropped": 0}
REPORT = {
    "ranks": 1, "restarts": 0, "epochs": [EPOCH], "losses": [0.5], "cycles": 1, "skipped_updates": 0, "flushed": 0,
    "short_steps": 0, "pending": 0, "saved": "run.ckpt", "saved_weights": None, "saved_adapter": None,
    "findings": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, exported: Callable[[str], Path]) -> Path:
    folder = tmp_path_factory.mktemp("restarts")
    bc.compile(bc.load(exported("mlp")), "data-parallel").save(folder / "fixed.boost")
    bc.compile(bc.load(exported("mlp")), "batch-size{dynamic=true},data-parallel").save(folder / "open.boost")
    np.savez(folder / "data.npz", np.zeros((64, 8), np.float32), np.zeros(64, np.int32))
    return folder


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs the command with jobs that end as ``ends`` says: lost, lost with a ``saved`` state, failed, or done."""
    monkeypatch.chdir(folder)
    (folder / "run.ckpt").touch()
    os.utime(folder / "run.ckpt", (0, 0))  # of a training before this one
    waits: list[float] = []
    monkeypatch.setattr("boost_compile.tools.training.restarts.time.sleep", waits.append)

    def run(program: str, *options: object, ends: tuple[str, ...]) -> tuple[Shell, list[Job], list[float]]:
        jobs: list[Job] = []

        def stand_in(job: Job) -> list[dict[str, Any]]:
            jobs.append(job)
            end = ends[len(jobs) - 1]
            if end == "saved":
                os.utime("run.ckpt", ns=(time.time_ns(), time.time_ns()))
            if end == "done":
                return [REPORT]
            if end == "failed":
                raise Ended(2, "rank 0: the loss is nan")
            raise Lost(128 + signal.SIGKILL, "rank 1 was ended by SIGKILL")

        monkeypatch.setattr(watch, "run_job", stand_in)
        line = (program, "--data", "data.npz", "--save", "run.ckpt", "--save-every", 1, *options)
        return shell(capsys, command, *line), jobs, waits

    return run


def test_it_starts_again_from_the_newest_state_with_longer_and_longer_waits(run: Callable[..., Any]) -> None:
    line = ("fixed.boost", "--ranks", 2, "--restarts=9", "--load", "other.ckpt", "--set", "learning_rate=0.1")
    ends = ("lost", "lost", "saved", "saved", "done")
    Path("other.ckpt").touch()
    done, jobs, waits = run(*line, ends=ends)
    assert done.code == 0, done
    assert waits == [1, 2, 4, 8]
    assert [job.ranks for job in jobs] == [2] * 5, "the program takes four samples on each rank, no more"
    began = ["fixed.boost", "--data", "data.npz", "--save", "run.ckpt", "--save-every", "1"]
    start = ["--load", "other.ckpt", "--set", "learning_rate=0.1"]
    assert list(jobs[1].arguments) == [*began, *start, "--ranks", "2"], "nothing was saved yet: as at first"
    assert list(jobs[3].arguments) == [*began, "--ranks", "2", "--resume", "run.ckpt"], "that state holds the rest"
    assert "  restart 2 of 9 in 2 s from where it began (nothing was saved yet): 2 ranks\n" in done.err
    assert "  restart 3 of 9 in 4 s from run.ckpt: 2 ranks\n" in done.err
    assert "1 optimizer step since restart 4." in done.out


def test_fewer_ranks_take_the_same_samples_where_as_many_come_no_further(run: Callable[..., Any]) -> None:
    line = ("open.boost", "--ranks", 4, "--batch-size", 2, "--restarts", 4)
    done, jobs, _ = run(*line, ends=("saved", "lost", "saved", "lost", "done"))
    # Lost once: as many. Lost without a new state: fewer; three do not divide eight samples.
    assert [job.arguments[-6:] for job in jobs[1:]] == [
        ("--ranks", str(ranks), "--batch-size", str(samples), "--resume", "run.ckpt")
        for ranks, samples in ((4, 2), (2, 4), (2, 4), (1, 8))
    ]
    assert [job.ranks for job in jobs] == [4, 4, 2, 2, 1]
    assert "restart 2 of 4 in 2 s from run.ckpt: 2 ranks with 4 samples each\n" in done.err


def test_it_gives_up_with_the_reason_of_the_last_loss(run: Callable[..., Any]) -> None:
    done, jobs, _ = run("fixed.boost", "--ranks", 2, "--restarts", 1, ends=("lost", "lost"))
    assert (done.code, done.out, len(jobs)) == (128 + signal.SIGKILL, "", 2)
    assert done.err.endswith("boost-run: error: rank 1 was ended by SIGKILL\n")


def test_a_failure_with_a_reason_is_not_tried_again(run: Callable[..., Any]) -> None:
    done, jobs, _ = run("fixed.boost", "--ranks", 2, "--restarts", 3, ends=("failed",))
    assert_one_error(done, "boost-run", "rank 0: the loss is nan")
    assert len(jobs) == 1
