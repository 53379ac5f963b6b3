"""A job of several ranks: what was asked for, and the processes that are it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...runtime.training.bar import Bar
from .folder import JobFolder
from .hosts import LOOPBACK
from .log import last_error

POLL = 0.05
"""Seconds between two looks at the processes of a job."""


@dataclass(slots=True)
class Job:
    """A job to be started. ``arguments`` are those of boost-run, for every rank the same. ``hosts``: their addresses,
    this machine first; none where it is the only one. ``shell``: the command that runs another on a host. ``files``:
    what all hosts must see."""

    ranks: int
    arguments: Sequence[str]
    hosts: Sequence[str] = ()
    shell: Sequence[str] = ()
    files: Sequence[str] = ()
    port: int | None = None
    log_dir: str | None = None
    save: str | None = None
    progress: Bar | None = None

    @property
    def address(self) -> str:
        """Where the ranks meet."""
        return self.hosts[0] if self.hosts else LOOPBACK

    @property
    def on_a_host(self) -> int:
        return self.ranks // max(1, len(self.hosts))


@dataclass(slots=True)
class Member:
    """One process of the job; ``rank`` is None for the scheduler."""

    pid: int
    rank: int | None
    status: int | None = None
    """Its exit code, or minus the signal that ended it; None while it runs."""
    ended: float = 0.0
    """When that was seen, in seconds of ``time.time``."""
    said: str = ""
    """The error in its output, where that is on another host."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A host that nothing is heard of since ``time`` (``time.time``). ``joined``: it was part of the job by then."""

    time: float
    why: str
    joined: bool


@dataclass(slots=True)
class RunningJob:
    job: Job
    folder: JobFolder
    logs: Path
    members: dict[int, Member] = field(default_factory=dict)
    """Those of this host, by process id."""
    elsewhere: list[Member] = field(default_factory=list)
    """The ranks on other hosts."""
    lost: dict[str, Loss] = field(default_factory=dict)
    """The other hosts that are gone, by address."""
    started: float = field(default_factory=time.time)
    stopped: bool = False
    """Whether the ranks were asked to save and leave."""

    @property
    def workers(self) -> list[Member]:
        return [member for member in (*self.members.values(), *self.elsewhere) if member.rank is not None]

    @property
    def scheduler(self) -> Member | None:
        return next((member for member in self.members.values() if member.rank is None), None)

    def name(self, member: Member) -> str:
        hosts = self.job.hosts
        where = f" on {hosts[(member.rank or 0) // self.job.on_a_host]}" if hosts else ""
        return f"rank {member.rank} of {self.job.ranks}{where}"

    def last_error(self, member: Member) -> str:
        return member.said or last_error(self.logs / f"worker_{member.rank}.log")

    def look(self) -> None:
        """Notes which processes of this host have ended, and how."""
        for member in self.members.values():
            if member.status is None:
                pid, status = os.waitpid(member.pid, os.WNOHANG)
                if pid:
                    member.status = os.waitstatus_to_exitcode(status)
                    member.ended = time.time()


def how_ended(status: int) -> str:
    """The meaning of an exit code, or of minus the number of a signal."""
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
