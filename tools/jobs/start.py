"""Starting the ranks of a job with msrun."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from ...ir.core.errors import RuntimeFailure
from . import folder, rank
from .lifeline import end_with_parent
from .log import last_error
from .running import Member, RunningJob, how_ended

COLLECTIVE_TIMEOUT = 7 * 24 * 3600
"""Seconds that a rank waits in a collective for the others (MindSpore: 30). A rank may be late for good reasons (it
evaluates, it writes a checkpoint), and of those that are lost the watcher hears at once."""
POLL = 0.05
"""Seconds between two looks at what msrun has started."""


class PortTaken(Exception):
    """Somebody else listens on the port that the scheduler was given."""


def start(running: RunningJob, port: int) -> None:
    """Starts msrun, which starts a scheduler and the ranks and ends; they become children of this process."""
    if not is_free(port):
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
        folder.VARIABLE: str(running.folder.path),
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
    command = [sys.executable, "-m", "mindspore.parallel.cluster.run"]
    command += ["--worker_num", ranks, "--local_worker_num", ranks]
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
        reason = last_error(output) or f"it {how_ended(msrun.returncode)}"
        raise RuntimeFailure(f"msrun could not start the ranks: {reason}")


def _find_members(running: RunningJob, msrun: int) -> None:
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(msrun).children():
            if child.pid in running.members:
                continue
            with suppress(psutil.Error):
                given = child.environ()
                if given.get("MS_ROLE") == "MS_SCHED":
                    running.members[child.pid] = Member(child.pid, None)
                elif given.get("MS_ROLE") == "MS_WORKER":
                    running.members[child.pid] = Member(child.pid, int(given["RANK_ID"]))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
