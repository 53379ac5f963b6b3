"""The training in several ranks: what is checked before any starts, and the job as one training."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from ...ir.core.errors import RuntimeFailure
from ...ir.core.wording import counted
from .data import training_data
from .display import shown
from .evaluation import evaluator_of
from .job import is_data, place_of
from .loading import settings_of
from .report import merged

if TYPE_CHECKING:
    from ...ir.core.program import Program
    from .job import Job


def train_in_ranks(job: Job, program: Program) -> dict[str, Any]:
    """Starts the ranks, watches them to the end, and returns what is to be reported."""
    _check_ranks(job, program)
    from ..jobs.running import Job as Processes
    from ..jobs.watch import run_job
    from .restarts import Attempt, run_with_restarts

    hosts = _hosts(job)

    def run(attempt: Attempt) -> dict[str, Any]:
        logs = f"{job.log_dir}/restart_{attempt.number}" if job.log_dir and attempt.number else job.log_dir
        shape, shell = attempt.shape, shlex.split(job.rsh)
        with shown(not job.quiet) as bar, _seen_by_all(job, attempt.state) as files:
            place = (job.master_port, logs, job.save, bar)
            return merged(run_job(Processes(shape.ranks, attempt.arguments, shape.hosts, shell, files, *place)))

    return run_with_restarts(job, hosts, program, run)


def _hosts(job: Job) -> tuple[str, ...]:
    """The addresses of the hosts; none where this machine is the only one."""
    if job.hosts is None:
        return ()
    from ..jobs.hosts import read_hosts

    hosts = read_hosts(job.hosts)
    if job.ranks % len(hosts):
        raise RuntimeFailure(
            f"{job.hosts}: {counted(job.ranks, 'rank')} cannot be divided evenly over {counted(len(hosts), 'host')}"
        )
    return hosts if len(hosts) > 1 else ()


@contextmanager
def _seen_by_all(job: Job, state: str | None) -> Iterator[list[str]]:
    """The files that the ranks read, on all hosts. Where the job may start again, one more: it stands beside the state
    that is saved, which all must see then."""
    evaluated = job.evaluate if job.evaluate is None or is_data(job.evaluate) else place_of(job.evaluate)[0]
    named = (job.program, job.data, job.val, evaluated, state, job.load_adapter)
    files = [file for file in named if file is not None and os.path.exists(file)]
    if job.hosts is None or not job.restarts:
        yield files
        return
    with NamedTemporaryFile(dir=Path(job.save or "").parent, prefix=".boost-run-") as beside:
        yield [*files, beside.name]


def schedule() -> None:
    """The process in which msrun lets the ranks of a job find each other; returns when the job is over."""
    import mindspore
    from mindspore import communication

    mindspore.set_device("CPU")
    communication.init()


def _check_ranks(job: Job, program: Program) -> None:
    """Faults that every rank would find, before any starts."""
    from ...ir.rewrite.ranks.adasum import check_ranks, needs_job
    from ...ir.rewrite.ranks.collectives import collectives

    graphs = program.graphs.values()
    if not any(needs_job(graph) or any(True for _ in collectives(graph)) for graph in graphs):
        raise RuntimeFailure(
            f"the program has nothing that ranks do together: {job.ranks} of them would train {job.ranks} different "
            f"networks. Compile it with the pass data-parallel or adasum"
        )
    for graph in graphs:
        check_ranks(graph, job.ranks)
    _, held_out = training_data(job, program)
    settings_of(job.settings, program)
    if job.evaluate is None or is_data(job.evaluate):  # a function is not run twice
        evaluator_of(job, program, held_out)
