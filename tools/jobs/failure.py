"""Which rank of a job failed first, and why."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from .. import cli, interruption
from .folder import FAILURE, PROGRESS, RESULT
from .log import end_of, last_error
from .running import Loss, Member, RunningJob, how_ended


class PortTaken(Exception):
    """Somebody else listens on the port that the scheduler was given."""


class Lost(cli.Ended):
    """A process of the job is gone and gave no reason of its own, or the whole ``host``."""

    host: str | None = None


def _lost(running: RunningJob, code: int, message: str) -> cli.Ended:
    return cli.Ended(code, message) if running.stopped else Lost(code, message)


def explain(running: RunningJob) -> NoReturn:
    """Names the rank that failed first, and why: the failures of the others follow from it."""
    causes: list[tuple[float, int, Callable[[], NoReturn]]] = []
    for host, loss in running.lost.items():
        causes.append((loss.time, -1, partial(_explain_host, running, host, loss)))
    for member in running.workers:
        assert member.rank is not None
        failure = running.folder.told(member.rank, FAILURE)
        if failure is not None:
            causes.append((failure["time"], member.rank, partial(_explain_failure, running, member, failure)))
        elif member.status is not None and member.status < 0:
            # Nothing that happens in a job kills a rank like this.
            time_ = 0.0 if member.status == -signal.SIGKILL else member.ended
            causes.append((time_, member.rank, partial(_explain_signal, running, member)))
        elif member.status is not None and not running.folder.told(member.rank, RESULT):
            causes.append((member.ended, member.rank, partial(_explain_exit, running, member)))
    if causes:
        min(causes, key=lambda cause: cause[:2])[2]()
    log = running.logs / "scheduler.log"
    if re.search(r"Failed to call bind|Address already in use", end_of(log)):
        raise PortTaken
    status = 0 if running.scheduler is None else running.scheduler.status or 0
    how = f"the scheduler of the job {how_ended(status)}: {last_error(log) or 'it gives no reason'}"
    raise _lost(running, cli.INTERNAL_FAILURE, f"{how}{_resume_hint(running)}")


def _explain_host(running: RunningJob, host: str, loss: Loss) -> NoReturn:
    what = f"host {host} {loss.why}" if loss.joined else f"host {host} did not join the job: it {loss.why}"
    error = _lost(running, cli.INTERNAL_FAILURE, f"{what}{_resume_hint(running)}")
    if isinstance(error, Lost):
        error.host = host
    raise error


def _explain_failure(running: RunningJob, member: Member, failure: dict[str, Any]) -> NoReturn:
    if failure["code"] == interruption.RESUMABLE:  # all of them stopped, as they were asked to
        raise cli.Ended(interruption.RESUMABLE, failure["message"])
    raise cli.Ended(failure["code"], f"{running.name(member)}: {failure['message']}{_resume_hint(running)}")


def _explain_exit(running: RunningJob, member: Member) -> NoReturn:
    reason = running.last_error(member) or "it gives no reason"
    status = member.status or 0
    how = f"{running.name(member)} {how_ended(status)} before it was done"
    raise _lost(running, status or cli.INTERNAL_FAILURE, f"{how}: {reason}{_resume_hint(running)}")


def _explain_signal(running: RunningJob, member: Member) -> NoReturn:
    assert member.status is not None
    if member.status == -signal.SIGKILL:
        why = " (sent by somebody, or by the system when memory runs out)"
    else:
        last = running.last_error(member)
        why = f": {last}" if last else ""
    told = running.folder.told(member.rank or 0, PROGRESS)
    when = f" after optimizer step {told['cycles']}" if told is not None else " before the first optimizer step"
    message = f"{running.name(member)} {how_ended(member.status)}{when}{why}{_resume_hint(running)}"
    raise _lost(running, 128 - member.status, message)


def _resume_hint(running: RunningJob) -> str:
    saved = running.job.save
    if saved is None or not os.path.isfile(saved) or os.path.getmtime(saved) < running.started:
        return ""
    return f"\n  {saved} holds the last state that was saved: --resume {saved} goes on from there"
