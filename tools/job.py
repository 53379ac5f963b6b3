"""boost-run --ranks: starts the ranks with msrun, watches them, and stops all when one fails.

msrun only starts them here. It would watch them itself (``--join True``), but then takes half a minute to end after a
failure, because it waits until its scheduler has missed the lost rank; it names no rank and no reason, leaves all
processes behind when it is killed, and reports 0 on ctrl-C.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NoReturn

import psutil

from ..ir.errors import OptionError, RuntimeFailure
from . import cli, job_folder, rank
from .job_folder import FAILURE, PROGRESS, RESULT, JobFolder
from .lifeline import adopting, end_with_parent

POLL = 0.05
"""Seconds between two looks at the ranks."""
SETTLING = 0.3
"""Seconds in which failures that follow from the first may still come in."""
ATTEMPTS = 5
"""How many ports are tried before giving up."""
COLLECTIVE_TIMEOUT = 7 * 24 * 3600
"""Seconds that a rank waits in a collective for the others (MindSpore: 30). A rank may be late for good reasons (it
evaluates, it writes a checkpoint), and of those that are lost the watcher hears at once."""


@dataclass(slots=True)
class Job:
    """What is to be started. ``arguments`` are those of boost-run, for every rank the same."""

    ranks: int
    arguments: Sequence[str]
    port: int | None = None
    log_dir: str | None = None
    save: str | None = None
    progress: bool | None = None


@dataclass(slots=True)
class _Member:
    """One process of the job; ``rank`` is None for the scheduler."""

    pid: int
    rank: int | None
    status: int | None = None
    ended: float = 0.0


@dataclass(slots=True)
class _Running:
    job: Job
    folder: JobFolder
    logs: Path
    members: dict[int, _Member] = field(default_factory=dict)
    """By process id."""

    @property
    def workers(self) -> list[_Member]:
        return [member for member in self.members.values() if member.rank is not None]

    @property
    def scheduler(self) -> _Member | None:
        return next((member for member in self.members.values() if member.rank is None), None)


class PortTaken(Exception):
    """Somebody else listens on the port that the scheduler was given."""


def run_job(job: Job) -> list[dict[str, Any]]:
    """Runs the job to its end and returns what each rank handed over, in their order.

    Whatever happens, afterwards no process of the job is left and no folder (but ``log_dir``). Raises cli.Ended with
    the failing rank's exit code and reason.
    """
    if sys.platform != "linux":
        raise OptionError("--ranks works on Linux only; without it one process trains")
    for attempt in range(ATTEMPTS):
        try:
            with _stopped_by_signals(), _folder() as path:
                running = _Running(job, JobFolder(path), Path(job.log_dir or path / "logs"))
                try:
                    with adopting():
                        return _attempt(running, job.port or _free_port())
                finally:
                    _clear_saving(running)
        except PortTaken:
            if job.port is not None or attempt == ATTEMPTS - 1:
                raise OptionError(
                    f"port {job.port or 'for the job'} is in use on this machine; give another with --master-port"
                ) from None
    raise AssertionError


def _attempt(running: _Running, port: int) -> list[dict[str, Any]]:
    from ..runtime.progress import progress_bar

    _start(running, port)
    with progress_bar(running.job.progress) as bar, _Echo(running.folder.output) as echo:
        while True:
            _look(running)
            told = [running.folder.told(r, PROGRESS) for r in range(running.job.ranks)]
            if any(told):
                bar.show(_tally([t for t in told if t is not None]))
            echo.copy()
            results = [running.folder.told(r, RESULT) for r in range(running.job.ranks)]
            if all(result is not None for result in results):
                echo.copy()
                return [result for result in results if result is not None]
            if _failed(running):
                time.sleep(SETTLING)
                _look(running)
                _explain(running)
            time.sleep(POLL)


# -- starting --------------------------------------------------------------------------------------------------


def _start(running: _Running, port: int) -> None:
    """Starts msrun, which starts a scheduler and the ranks and ends; they become children of this process."""
    if not _is_free(port):
        raise PortTaken
    running.logs.mkdir(parents=True, exist_ok=True)
    scratch = running.folder.path / "tmp"
    scratch.mkdir()
    python = Path(sys.executable)
    ranks = str(running.job.ranks)
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MS_ROLE", "MS_NODE_ID", "RANK_ID")
    }
    environment |= {
        job_folder.VARIABLE: str(running.folder.path),
        rank.WATCHER: str(os.getpid()),
        # What a killed rank leaves in its temporary folder goes with the job.
        "TMPDIR": str(scratch),
        # msrun calls Python by name.
        "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        # As in boost-run itself, the working directory is no place to import from.
        "PYTHONSAFEPATH": "1",
    }
    environment.setdefault("MS_CPU_COMM_OP_TIMEOUT", str(COLLECTIVE_TIMEOUT))
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // running.job.ranks)))
    command = [
        sys.executable,
        "-m",
        "mindspore.parallel.cluster.run",
        "--worker_num",
        ranks,
        "--local_worker_num",
        ranks,
    ]
    command += ["--master_addr", "127.0.0.1", "--master_port", str(port), "--join", "False"]
    command += ["--log_dir", str(running.logs), "python3" if python.with_name("python3").exists() else "python"]
    command += ["-m", "boost_compile.tools.run", *running.job.arguments]
    output = running.logs / "msrun.log"
    with open(output, "wb") as file:
        msrun = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            preexec_fn=end_with_parent,
            start_new_session=True,
        )
    while msrun.poll() is None:
        _find_members(running, msrun.pid)
        time.sleep(POLL)
    if msrun.returncode != 0 or len(running.members) != running.job.ranks + 1:
        raise RuntimeFailure(f"msrun could not start the ranks: {_last_error(output) or 'it gives no reason'}")


def _find_members(running: _Running, msrun: int) -> None:
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(msrun).children():
            if child.pid in running.members:
                continue
            with suppress(psutil.Error):
                given = child.environ()
                if given.get("MS_ROLE") == "MS_SCHED":
                    running.members[child.pid] = _Member(child.pid, None)
                elif given.get("MS_ROLE") == "MS_WORKER":
                    running.members[child.pid] = _Member(child.pid, int(given["RANK_ID"]))


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def _is_free(port: int) -> bool:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


# -- watching --------------------------------------------------------------------------------------------------


def _look(running: _Running) -> None:
    """Notes which processes have ended, and how."""
    for member in running.members.values():
        if member.status is None:
            pid, status = os.waitpid(member.pid, os.WNOHANG)
            if pid:
                member.status = os.waitstatus_to_exitcode(status)
                member.ended = time.time()


def _failed(running: _Running) -> bool:
    if running.scheduler is not None and running.scheduler.status is not None:
        return True
    for member in running.workers:
        assert member.rank is not None
        if running.folder.told(member.rank, FAILURE):
            return True
        if member.status is not None and not running.folder.told(member.rank, RESULT):
            return True
    return False


def _explain(running: _Running) -> NoReturn:
    """Names the rank that failed first, and why: the failures of the others follow from it."""
    causes: list[tuple[float, int, Callable[[], NoReturn]]] = []
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
    if re.search(r"Failed to call bind|Address already in use", _text(log)):
        raise PortTaken
    raise cli.Ended(cli.INTERNAL_FAILURE, f"the scheduler of the job ended: {_last_error(log) or 'it gives no reason'}")


def _explain_failure(running: _Running, member: _Member, failure: dict[str, Any]) -> NoReturn:
    raise cli.Ended(failure["code"], f"{_name(running, member)}: {failure['message']}{_resume_hint(running)}")


def _explain_exit(running: _Running, member: _Member) -> NoReturn:
    reason = _last_error(_log(running, member)) or "it gives no reason"
    how = f"{_name(running, member)} ended with exit code {member.status} before it was done"
    raise cli.Ended(member.status or cli.INTERNAL_FAILURE, f"{how}: {reason}{_resume_hint(running)}")


def _explain_signal(running: _Running, member: _Member) -> NoReturn:
    assert member.status is not None
    number = -member.status
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGKILL:
        why = " (sent by somebody, or by the system when memory runs out)"
    else:
        last = _last_error(_log(running, member))
        why = f": {last}" if last else ""
    told = running.folder.told(member.rank or 0, PROGRESS)
    when = f" after {told['cycles']} optimizer steps" if told is not None else " before the first optimizer step"
    message = f"{_name(running, member)} was ended by {name}{when}{why}{_resume_hint(running)}"
    raise cli.Ended(128 + number, message)


def _name(running: _Running, member: _Member) -> str:
    return f"rank {member.rank} of {running.job.ranks}"


def _log(running: _Running, member: _Member) -> Path:
    return running.logs / f"worker_{member.rank}.log"


def _resume_hint(running: _Running) -> str:
    saved = running.job.save
    if saved is None or not os.path.isfile(saved):
        return ""
    return f"\n  {saved} holds the last state that was saved: --resume {saved} goes on from there"


_PYTHON_ERROR = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")
_LOGGED_ERROR = re.compile(r"^\[(ERROR|CRITICAL)\]|\berror:|^Fatal")


def _last_error(log: Path) -> str:
    """The last line of a log that says what went wrong; "" where none does."""
    lines = [line.strip() for line in _text(log).splitlines()]
    for pattern in (_PYTHON_ERROR, _LOGGED_ERROR):
        for line in reversed(lines):
            if pattern.search(line):
                return line
    return ""


def _text(log: Path, limit: int = 1 << 18) -> str:
    """The end of a log."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


# -- showing ---------------------------------------------------------------------------------------------------


def _tally(told: Sequence[dict[str, Any]]) -> Any:
    """How far the ranks are: as far as the slowest, with the mean of their losses."""
    from ..runtime.progress import Tally

    losses = [t["loss"] for t in told if t["loss"] is not None]
    return Tally(
        micro_batches=min(t["micro_batches"] for t in told),
        total=told[0]["total"],
        samples=sum(t["samples"] for t in told),
        cycles=min(t["cycles"] for t in told),
        loss=fmean(losses) if losses else None,
    )


class _Echo:
    """Passes on what rank 0 writes to its standard output."""

    def __init__(self, path: Path):
        self.path = path
        self.read = 0

    def __enter__(self) -> _Echo:
        return self

    def __exit__(self, *_: object) -> None:
        self.copy()

    def copy(self) -> None:
        with suppress(FileNotFoundError), open(self.path, "rb") as file:
            file.seek(self.read)
            new = file.read()
        self.read += len(new)
        sys.stdout.write(new.decode(errors="replace"))
        sys.stdout.flush()


# -- cleaning up -----------------------------------------------------------------------------------------------


@contextmanager
def _folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="boost-run-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Being terminated ends the job in order, as ctrl-C does."""

    def stop(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _clear_saving(running: _Running) -> None:
    """Removes what rank 0 was writing when it was killed."""
    from ..runtime.checkpoint import scratch_prefix

    if running.job.save is None:
        return
    for member in running.workers:
        for left in Path(os.path.abspath(running.job.save)).parent.glob(f"{scratch_prefix(member.pid)}*"):
            shutil.rmtree(left, ignore_errors=True)
