"""boost-run --ranks: starts the ranks with msrun, watches them, and stops all when one fails.

msrun only starts them here. It would watch them itself (``--join True``), but then takes half a minute to end after a
failure, because it waits until its scheduler has missed the lost rank; it names no rank and no reason, leaves all
processes behind when it is killed, and reports 0 on ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...ir.core.errors import OptionError
from ...runtime.training.bar import Bar
from ...runtime.training.progress import NoBar
from .. import interruption
from .display import Echo, joint_epoch, joint_tally
from .failure import PortTaken, explain
from .folder import EPOCHS, FAILURE, PROGRESS, RESULT, JobFolder
from .hosts import free_port, is_free
from .lifeline import adopting
from .remote import RemoteHost
from .running import POLL, Job, RunningJob
from .start import start

SETTLING = 0.3
"""Seconds in which failures that follow from the first may still come in."""
ATTEMPTS = 5
"""How many ports are tried before giving up."""


def run_job(job: Job) -> list[dict[str, Any]]:
    """Runs the job to its end and returns what each rank handed over, in their order.

    Whatever happens, afterwards no process of the job is left and no folder (but ``log_dir``). Raises cli.Ended with
    the failing rank's exit code and reason.
    """
    if sys.platform != "linux":
        raise OptionError("--ranks works on Linux only; without it one process trains")
    for attempt in range(ATTEMPTS):
        try:
            folder = TemporaryDirectory(prefix="boost-run-", ignore_cleanup_errors=True)
            with _stopped_by_signals() as watched, folder as path:
                running = RunningJob(job, JobFolder(Path(path)), Path(job.log_dir or f"{path}/logs"))
                watched.append(running)
                try:
                    with adopting():
                        return _attempt(running, job.port or free_port(job.address))
                finally:
                    _clear_saving(running)
        except PortTaken:
            if job.port is not None or attempt == ATTEMPTS - 1:
                raise OptionError(
                    f"port {job.port or 'for the job'} is in use on this machine; give another with --master-port"
                ) from None
    raise AssertionError


def _attempt(running: RunningJob, port: int) -> list[dict[str, Any]]:
    if not is_free(port, running.job.address):
        raise PortTaken
    hosts: list[RemoteHost] = []
    try:
        hosts += (RemoteHost(running, node) for node in range(1, len(running.job.hosts)))
        _gather(running, hosts)
        for host in hosts:
            host.begin(port)
        start(running, port, 0, lambda: _listen(hosts))
        return _watch(running, hosts)
    finally:
        for host in hosts:
            host.close()


def _gather(running: RunningJob, hosts: list[RemoteHost]) -> None:
    """Waits until all other hosts have answered."""
    while not all(host.ready for host in hosts):
        _listen(hosts)
        if running.lost:
            explain(running)
        time.sleep(POLL)


def _watch(running: RunningJob, hosts: list[RemoteHost]) -> list[dict[str, Any]]:
    bar = running.job.progress or NoBar()
    epochs = 0
    with Echo(running.folder.output) as echo:
        while True:
            _look(running, hosts)
            told = [running.folder.told(r, PROGRESS) for r in range(running.job.ranks)]
            if any(told):
                bar.show(joint_tally([t for t in told if t is not None]))
            echo.copy()
            epochs = _show_epochs(running, bar, epochs)
            results = [running.folder.told(r, RESULT) for r in range(running.job.ranks)]
            if all(result is not None for result in results):
                echo.copy()
                return [result for result in results if result is not None]
            if _failed(running):
                time.sleep(SETTLING)
                _look(running, hosts)
                while any(host.wavering for host in hosts):  # the rank may have failed because that host is gone
                    time.sleep(POLL)
                    _look(running, hosts)
                if running.stopped and _left_unsaved(running):
                    raise KeyboardInterrupt
                explain(running)
            time.sleep(POLL)


def _show_epochs(running: RunningJob, bar: Bar, shown: int) -> int:
    """Shows the epochs that all ranks have done, from number ``shown`` on; returns how many there are."""
    told = [running.folder.told(rank, EPOCHS) for rank in range(running.job.ranks)]
    lists = [t["epochs"] for t in told if t is not None]
    done = min(map(len, lists)) if len(lists) == running.job.ranks else 0
    for number in range(shown, done):
        bar.epoch(joint_epoch([epochs[number] for epochs in lists]), told[0]["of"] if told[0] else 0)
    return max(shown, done)


def _look(running: RunningJob, hosts: list[RemoteHost]) -> None:
    running.look()
    _listen(hosts)


def _listen(hosts: list[RemoteHost]) -> None:
    for host in hosts:
        host.look()


def _failed(running: RunningJob) -> bool:
    if running.lost:
        return True
    if running.scheduler is not None and running.scheduler.status is not None:
        return True
    for member in running.workers:
        assert member.rank is not None
        if running.folder.told(member.rank, FAILURE):
            return True
        if member.status is not None and not running.folder.told(member.rank, RESULT):
            return True
    return False


def _left_unsaved(running: RunningJob) -> bool:
    """Whether ranks that were asked to leave could not save yet: MindSpore was still starting."""
    if any(running.folder.told(member.rank or 0, FAILURE) for member in running.workers):
        return False
    return all(member.status in (None, interruption.EXIT_CODE, -signal.SIGTERM) for member in running.workers)


@contextmanager
def _stopped_by_signals() -> Iterator[list[RunningJob]]:
    """Being terminated ends the job in order, as ctrl-C does. Where its state is to be saved, the ranks are asked to do
    that and leave; a second signal ends the job at once. What is put into the list is the job."""
    asked: list[int] = []
    watched: list[RunningJob] = []

    def stop(number: int, _frame: object) -> None:
        saved = [running for running in watched if running.job.save is not None]
        workers = [m for running in saved for m in running.members.values() if m.rank is not None and m.status is None]
        if workers and number != signal.SIGHUP and not asked:
            asked.append(number)
            for running in saved:
                running.stopped = True
            for member in workers:
                with suppress(ProcessLookupError):
                    os.kill(member.pid, signal.SIGTERM)
            return
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    try:
        yield watched
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _clear_saving(running: RunningJob) -> None:
    """Removes what rank 0 was writing when it was killed."""
    from ...ir.files.atomic import clear_leftovers

    if running.job.save is not None:
        clear_leftovers(Path(os.path.abspath(running.job.save)))
