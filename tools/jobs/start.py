"""Starting the ranks of a job with msrun."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from ...ir.core.errors import RuntimeFailure
from . import folder, rank
from .lifeline import end_with_parent
from .log import last_error
from .running import POLL, Member, RunningJob, how_ended

COLLECTIVE_TIMEOUT = 7 * 24 * 3600
"""Seconds that a rank waits in a collective for the others (MindSpore: 30). A rank may be late for good reasons (it
evaluates, it writes a checkpoint), and of those that are lost the watcher hears at once."""


def start(running: RunningJob, port: int, node: int, meanwhile: Callable[[], None]) -> None:
    """Starts msrun, which starts the ranks of host number ``node`` (and on the first one a scheduler) and ends; they
    become children of this process. Calls ``meanwhile`` again and again."""
    job = running.job
    running.logs.mkdir(parents=True, exist_ok=True)
    scratch = running.folder.path / "tmp"
    scratch.mkdir()
    python = Path(sys.executable)
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
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // job.on_a_host)))
    if job.hosts:
        environment["MS_WORKER_IP"] = job.hosts[node]  # of several that a machine may have
    command = [sys.executable, "-m", "mindspore.parallel.cluster.run"]
    command += ["--worker_num", str(job.ranks), "--local_worker_num", str(job.on_a_host), "--node_rank", str(node)]
    command += ["--master_addr", job.address, "--master_port", str(port), "--join", "False"]
    command += ["--log_dir", str(running.logs), "python3" if python.with_name("python3").exists() else "python"]
    command += ["-m", "boost_compile.tools.run", *job.arguments]
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
        meanwhile()
        time.sleep(POLL)
    _find_members(running, os.getpid())  # those that came since the last look: they are children of this process now
    if msrun.returncode != 0 or len(running.members) != job.on_a_host + (node == 0):
        reason = last_error(output) or f"it {how_ended(msrun.returncode)}"
        raise RuntimeFailure(f"msrun could not start the ranks: {reason}")


def _find_members(running: RunningJob, parent: int) -> None:
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(parent).children():
            if child.pid in running.members:
                continue
            with suppress(psutil.Error):
                given = child.environ()
                if given.get("MS_ROLE") == "MS_SCHED":
                    running.members[child.pid] = Member(child.pid, None)
                elif given.get("MS_ROLE") == "MS_WORKER":
                    running.members[child.pid] = Member(child.pid, int(given["RANK_ID"]))
