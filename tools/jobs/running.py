"""A job of several ranks: what was asked for, and the processes that are it."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...runtime.training.bar import Bar
from .folder import JobFolder


@dataclass(slots=True)
class Job:
    """A job to be started. ``arguments`` are those of boost-run, for every rank the same."""

    ranks: int
    arguments: Sequence[str]
    port: int | None = None
    log_dir: str | None = None
    save: str | None = None
    progress: Bar | None = None


@dataclass(slots=True)
class Member:
    """One process of the job; ``rank`` is None for the scheduler."""

    pid: int
    rank: int | None
    status: int | None = None
    """Its exit code, or minus the signal that ended it; None while it runs."""
    ended: float = 0.0
    """When that was seen, in seconds of ``time.time``."""


@dataclass(slots=True)
class RunningJob:
    job: Job
    folder: JobFolder
    logs: Path
    members: dict[int, Member] = field(default_factory=dict)
    """By process id."""
    started: float = field(default_factory=time.time)
    stopped: bool = False
    """Whether the ranks were asked to save and leave."""

    @property
    def workers(self) -> list[Member]:
        return [member for member in self.members.values() if member.rank is not None]

    @property
    def scheduler(self) -> Member | None:
        return next((member for member in self.members.values() if member.rank is None), None)

    def name(self, member: Member) -> str:
        return f"rank {member.rank} of {self.job.ranks}"

    def log(self, member: Member) -> Path:
        return self.logs / f"worker_{member.rank}.log"


def how_ended(status: int) -> str:
    """The meaning of an exit code, or of minus the number of a signal."""
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
