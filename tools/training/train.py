"""The training itself: in this process, which may be one rank of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import cli
from ..jobs.folder import JobFolder
from ..jobs.rank import Rank
from .evaluation import function_at
from .loading import load
from .report import document_of

if TYPE_CHECKING:
    from ...ir.program import Program
    from ...runtime.fit import History
    from ...runtime.session import Session
    from .job import Job


def train(job: Job, program: Program) -> dict[str, Any] | None:
    """Trains, saves, and returns what is to be reported; None where another process reports."""
    evaluate = None if job.evaluate is None else function_at(job.evaluate)

    from ...runtime.retention import load_newest, save_and_retain
    from ...runtime.session import Session  # MindSpore starts here: everything that can be checked has been

    session = Session(program, device=job.device, seed=job.seed, check_replicas=job.check_replicas)
    rank = Rank(session.ranks.rank, JobFolder.of_environment())
    if job.load is not None:
        load(session, job.load, job.partial)
    if job.resume is not None:
        load_newest(session, job.resume)
    # Once is enough: the weights are the same on all ranks.
    history = _fitted(job, session, rank, evaluate if rank.number == 0 else None)
    if job.save is not None:
        save_and_retain(session, job.save, job.states_kept, job.sync)
    document = document_of(job, history, session.ranks.size)
    return None if rank.finish(document) or rank.number > 0 else document


def _fitted(job: Job, session: Session, rank: Rank, evaluate: Any) -> History:
    """``session.fit``; a training that was asked to stop, and saved, has an exit code of its own."""
    from ...runtime.saving import SaveEvery
    from ...runtime.stop import EXIT_CODE, Stopped

    callbacks = []
    if job.save is not None:
        saving = SaveEvery(job.save, job.save_every, job.sync, minutes=job.save_minutes, keep=job.states_kept)
        callbacks.append(saving)
    try:
        return session.fit(
            job.data,
            epochs=job.epochs,
            batch_size=job.batch_size,
            shuffle=job.shuffle,
            seed=job.seed,
            callbacks=callbacks,
            evaluate=evaluate,
            progress=rank if rank.folder is not None else False if job.as_json or rank.number > 0 else None,
            allow_nonfinite=job.allow_nonfinite,
            resume=job.resume is not None,
        )
    except Stopped as stopped:
        raise cli.Ended(EXIT_CODE, str(stopped)) from None
