"""Jobs in processes of their own: what became of each, also where a process crashed or did not end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import PATIENCE

from . import ascend, gpu
from .programs import Job
from .worker import KEEP

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENTS: dict[str, Callable[[], dict[str, str]]] = {"GPU": gpu.environment, "Ascend": ascend.environment}
IN_A_PROCESS = 60
"""So many programs a process: MindSpore keeps what it has compiled."""
STUBS = "stubs"
WORKER = "tests.devices.worker"
RANKS = {"RANK_SIZE": "8", "RANK_ID": "3"}
"""MindSpore's simulation of a job of ranks, of which the process is one; the simulated Ascend alone knows it."""


@dataclass(frozen=True)
class Outcome:
    """`end` is one of "ran", "refused" (by a pass), "failed" (with an error when it ran), "compiler failed" (not
    with an error of its own), "crashed" (the process ended) and "no end" (it took longer than the limit)."""

    job: Job
    end: str
    message: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        first = self.message.strip().partition("\n")[0]
        return f"{self.job}: {self.end} {first}".rstrip()


def run(
    device: str,
    jobs: Iterable[Job],
    source: Callable[[str], Path],
    *,
    limit: float = 300.0,
    processes: int = 1,
    worker: str = WORKER,
    cycles: int = 2,
    keep: Path | None = None,
) -> list[Outcome]:
    """What became of each job on a device; `source(network)` is the exported file.

    `limit` is in seconds for one program; a process may take longer to come to its first. In `keep` worker.py leaves
    the losses and the final state of each, and the file STUBS there names what was called that does nothing. Raises
    NotPossible where nothing can be built.
    """
    environment = ENVIRONMENTS[device]()
    if keep is not None:
        environment |= {KEEP: str(keep), "DEVICE_STUBS_LOG": str(keep / STUBS)}
    rows = [(job, source(job.network)) for job in sorted(jobs)]
    parts = []
    for ranks in (False, True):
        these = [row for row in rows if (device == "Ascend" and row[0].on_ranks) == ranks]
        size = min(IN_A_PROCESS, -(-len(these) // processes)) or 1
        parts += [(these[i : i + size], RANKS if ranks else {}) for i in range(0, len(these), size)]

    def run_part(part: tuple[Sequence[tuple[Job, Path]], Mapping[str, str]]) -> list[Outcome]:
        """One process, and another one for the rest wherever one came to a bad end."""
        part_rows, ranks = part
        outcomes: list[Outcome] = []
        while len(outcomes) < len(part_rows):
            command = [sys.executable, "-m", worker, device]
            outcomes += _run_process(command, part_rows[len(outcomes) :], cycles, environment | ranks, limit)
        return outcomes

    with ThreadPoolExecutor(processes) as pool:
        return sorted(
            (outcome for done in pool.map(run_part, parts) for outcome in done), key=lambda outcome: outcome.job
        )


def _run_process(
    command: Sequence[str],
    rows: Sequence[tuple[Job, Path]],
    cycles: int,
    environment: Mapping[str, str],
    limit: float,
) -> list[Outcome]:
    """The outcomes as far as the process came; the last one tells how it ended, unless it did all."""
    with tempfile.TemporaryDirectory(prefix="devices-") as name:
        folder = Path(name)
        jobs = [(job.network, job.pipeline, str(source)) for job, source in rows]
        (folder / "jobs.json").write_text(json.dumps({"cycles": cycles, "jobs": jobs}))
        (folder / "outcomes.jsonl").touch()
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(
                [*command, str(folder)],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,  # MindSpore leaves folders where it runs
                env=whole(environment),
            )
            try:
                ended = _wait(process, folder / "outcomes.jsonl", limit)
            finally:
                process.kill()
                process.wait()
        lines = [json.loads(line) for line in (folder / "outcomes.jsonl").read_text().splitlines()]
        done = [line for line in lines if "end" in line]
        outcomes = [Outcome(job, **line) for (job, _), line in zip(rows, done, strict=False)]
        if len(done) < len(rows):
            words = (folder / "log").read_text(errors="replace")[-4000:]
            if not lines:
                raise RuntimeError(f"the process did not come to its first program: {' '.join(command)}\n{words}")
            what = "no end" if ended is None else "crashed"
            how = f"longer than {limit:.0f} s" if ended is None else f"the process ended with {ended}"
            outcomes.append(Outcome(rows[len(done)][0], what, f"{how}\n{words}"))
        return outcomes


def _wait(process: subprocess.Popen[bytes], outcomes: Path, limit: float) -> int | None:
    """The exit code; None where a program took longer than `limit` seconds."""
    size, since = 0, time.monotonic()
    while True:
        try:
            return process.wait(0.5)
        except subprocess.TimeoutExpired:
            now = outcomes.stat().st_size
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > (limit if size else max(limit, PATIENCE)):
                return None


def whole(environment: Mapping[str, str]) -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")])]
    return {**os.environ, "GLOG_v": "3", **environment, "PYTHONPATH": os.pathsep.join(paths)}
