"""The training in several ranks: what is checked before any starts, and the job as one training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir.core.errors import RuntimeFailure
from .data import training_data
from .display import shown
from .evaluation import evaluator_of
from .job import is_data
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

    with shown(not job.quiet) as bar:
        return merged(run_job(Processes(job.ranks, job.arguments, job.master_port, job.log_dir, job.save, bar)))


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
