"""boost-run as one rank of a job that msrun started."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from io import TextIOWrapper
from typing import Any, NoReturn

import click

from .. import cli
from .folder import EPOCHS, FAILURE, PROGRESS, RESULT, JobFolder
from .lifeline import end_with

WATCHER = "BOOST_RUN_WATCHER"
"""The environment variable with the process id of the boost-run that watches the ranks."""

INTERVAL = 0.2
"""Seconds between two notes of progress."""


def role() -> str | None:
    """ "MS_SCHED" or "MS_WORKER" in a process that msrun started, else None."""
    return os.environ.get("MS_ROLE")


@dataclass(slots=True)
class Rank:
    """This rank of the job (0 also where there is none); without ``folder`` nobody reads notes."""

    number: int
    folder: JobFolder | None
    _noted: float = 0.0
    _epochs: list[dict[str, Any]] = field(default_factory=list)

    def show(self, tally: Any) -> None:
        """A progress bar (:class:`..runtime.progress.Bar`) whose picture is drawn elsewhere."""
        now = time.monotonic()
        if self.folder is not None and (now - self._noted > INTERVAL or tally.micro_batches == tally.total):
            self.folder.tell(self.number, PROGRESS, asdict(tally))
            self._noted = now

    def epoch(self, epoch: Any, epochs: int) -> None:
        if self.folder is not None:
            self._epochs.append(asdict(epoch))
            self.folder.tell(self.number, EPOCHS, {"epochs": self._epochs, "of": epochs})

    def finish(self, document: dict[str, Any]) -> bool:
        """Hands the result over; False where nobody takes it."""
        if self.folder is None:
            return False
        sys.stdout.flush()
        self.folder.tell(self.number, RESULT, document)
        return True


def run(command: click.Command) -> NoReturn:
    """Runs a command as rank or scheduler of a job. Where boost-run watches the job, what it came to is told there, and
    a rank that is done waits for being killed when all are."""
    folder = JobFolder.of_environment()
    if folder is None:
        cli.run(command)
    end_with(int(os.environ[WATCHER]))
    code: Any = cli.INTERNAL_FAILURE
    try:
        if role() == "MS_WORKER":
            if int(os.environ["RANK_ID"]) == 0:
                os.dup2(os.open(folder.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
                if isinstance(sys.stdout, TextIOWrapper):
                    sys.stdout.reconfigure(line_buffering=True)
            cli.run(command, fail=_telling(folder))
        cli.run(command)
    except SystemExit as end:
        code = end.code
        if role() == "MS_WORKER" and folder.told(int(os.environ["RANK_ID"]), RESULT) is not None:
            # The scheduler would take a rank that leaves for lost, and end the others that are not done yet.
            while True:
                signal.pause()
    finally:
        # MindSpore's own end waits for the other ranks, for half a minute if one of them is gone.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _telling(folder: JobFolder) -> Callable[[str, int, str], NoReturn]:
    def fail(name: str, code: int, message: str) -> NoReturn:
        folder.tell(int(os.environ["RANK_ID"]), FAILURE, {"code": code, "message": message, "time": time.time()})
        cli.fail(name, code, message)

    return fail
