"""The start of a job: its ranks are found, however fast msrun has started them and ended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from boost_compile.ir.core.errors import RuntimeFailure
from boost_compile.tools.jobs.folder import JobFolder
from boost_compile.tools.jobs.lifeline import adopting
from boost_compile.tools.jobs.running import Job, RunningJob
from boost_compile.tools.jobs.start import start

MSRUN = f"""#!{sys.executable}
import os, subprocess
for role in ({{"MS_ROLE": "MS_SCHED"}}, *({{"MS_ROLE": "MS_WORKER", "RANK_ID": rank}} for rank in "{{ranks}}")):
    subprocess.Popen(["sleep", "600"], env={{**os.environ, **role}})
"""


def started(folder: Path, monkeypatch: pytest.MonkeyPatch, ranks: str) -> RunningJob:
    """A job of two ranks, whose msrun starts those of ``ranks`` and is gone before anybody looks."""
    stand_in = folder / "msrun"
    stand_in.write_text(MSRUN.replace("{ranks}", ranks))
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    running = RunningJob(Job(2, ()), JobFolder(folder), folder / "logs")
    with adopting():
        start(running, 1, 0, lambda: None)
    return running


def test_ranks_are_found_although_msrun_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = started(tmp_path, monkeypatch, "01")
    assert running.scheduler is not None
    assert sorted(member.rank for member in running.workers) == [0, 1]


def test_a_rank_that_was_not_started_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeFailure, match="msrun could not start the ranks: it ended with exit code 0"):
        started(tmp_path, monkeypatch, "0")
